# The SPANK plugin without Slurm: as a module in a program that plays Slurm's part.
if LS_SLURM
check_PROGRAMS += tests/spank/test_spank tests/spank/trace_spank
TESTS += tests/spank/test_spank tests/spank/test_symbols.py
# The calls of a sanitizer are not the plugin's.
plain_tests += tests/spank/test_trace.py
tests_spank_test_spank_SOURCES = tests/spank/test_spank.c tests/spank/fake.c tests/spank/fake.h
tests_spank_test_spank_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_spank_test_spank_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_spank_test_spank_LDADD = libls_base.la
tests_spank_trace_spank_SOURCES = tests/spank/trace_spank.c tests/spank/fake.c tests/spank/fake.h
tests_spank_trace_spank_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_spank_trace_spank_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_spank_trace_spank_LDADD = libls_base.la
endif
dist_check_SCRIPTS += tests/spank/test_symbols.py tests/spank/test_trace.py
