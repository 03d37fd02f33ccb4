check_PROGRAMS += tests/keep/test_keep tests/keep/test_programs
TESTS += tests/keep/test_keep tests/keep/test_programs
tests_keep_test_keep_SOURCES = tests/keep/test_keep.c
tests_keep_test_keep_LDADD = libls_keep.la libls_base.la
tests_keep_test_programs_SOURCES = tests/keep/test_programs.c
tests_keep_test_programs_LDADD = libls_keep.la libls_wire.la libls_topo.la libls_base.la $(PMIX_LIBS)
