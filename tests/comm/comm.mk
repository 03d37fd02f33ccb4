# Processes that form worlds; several nodes on one machine by UCX over the loopback device.
COMM_TESTS = tests/comm/test_reduce tests/comm/test_collectives tests/comm/test_overlap tests/comm/test_faults \
	tests/comm/test_meets
check_PROGRAMS += $(COMM_TESTS)
TESTS += $(COMM_TESTS)
COMM_HARNESS = tests/comm/harness.h tests/comm/harness.c tests/comm/numbers.h tests/comm/numbers.c
COMM_LIBS = libls_comm.la libls_base.la $(UCX_LIBS) -lm -lpthread
if LS_UCX
COMM_TEST_CPPFLAGS = $(AM_CPPFLAGS)
else
COMM_TEST_CPPFLAGS = $(AM_CPPFLAGS) -DLS_TEST_NO_UCX
endif
tests_comm_test_reduce_SOURCES = tests/comm/test_reduce.c tests/comm/numbers.h tests/comm/numbers.c
tests_comm_test_reduce_LDADD = libls_base.la -lm
tests_comm_test_collectives_SOURCES = tests/comm/test_collectives.c $(COMM_HARNESS)
tests_comm_test_collectives_CPPFLAGS = $(COMM_TEST_CPPFLAGS)
tests_comm_test_collectives_LDADD = $(COMM_LIBS)
tests_comm_test_overlap_SOURCES = tests/comm/test_overlap.c $(COMM_HARNESS)
tests_comm_test_overlap_CPPFLAGS = $(COMM_TEST_CPPFLAGS)
tests_comm_test_overlap_LDADD = $(COMM_LIBS)
tests_comm_test_faults_SOURCES = tests/comm/test_faults.c $(COMM_HARNESS)
tests_comm_test_faults_CPPFLAGS = $(COMM_TEST_CPPFLAGS)
tests_comm_test_faults_LDADD = $(COMM_LIBS)
tests_comm_test_meets_SOURCES = tests/comm/test_meets.c $(COMM_HARNESS)
tests_comm_test_meets_CPPFLAGS = $(COMM_TEST_CPPFLAGS)
tests_comm_test_meets_LDADD = $(COMM_LIBS)
