wire_tests = tests/wire/test_fingerprint tests/wire/test_control tests/wire/test_rendezvous \
	tests/wire/test_server
check_PROGRAMS += $(wire_tests) tests/wire/mini_keeper
TESTS += $(wire_tests) tests/wire/test_srun.py
dist_check_SCRIPTS += tests/wire/test_srun.py
wire_ldadd = libls_wire.la libls_base.la $(PMIX_LIBS) -lm -lpthread
if LS_PMIX
wire_cflags = $(AM_CFLAGS) $(PMIX_CFLAGS) -DLS_HAVE_PMIX
else
wire_cflags = $(AM_CFLAGS)
endif

tests_wire_test_fingerprint_SOURCES = tests/wire/test_fingerprint.c
tests_wire_test_fingerprint_LDADD = $(wire_ldadd)
tests_wire_test_control_SOURCES = tests/wire/test_control.c tests/wire/hub.h
tests_wire_test_control_LDADD = $(wire_ldadd)
tests_wire_test_rendezvous_SOURCES = tests/wire/test_rendezvous.c tests/wire/hub.h
tests_wire_test_rendezvous_LDADD = $(wire_ldadd)
tests_wire_test_server_SOURCES = tests/wire/test_server.c tests/wire/hub.h tests/wire/mini.h \
	tests/wire/mini.c
tests_wire_test_server_CFLAGS = $(wire_cflags)
tests_wire_test_server_LDADD = $(wire_ldadd)
tests_wire_mini_keeper_SOURCES = tests/wire/mini_keeper.c tests/wire/mini.h tests/wire/mini.c
tests_wire_mini_keeper_CFLAGS = $(wire_cflags)
tests_wire_mini_keeper_LDADD = $(wire_ldadd)
