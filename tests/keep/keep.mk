check_PROGRAMS += tests/keep/test_keep
TESTS += tests/keep/test_keep
tests_keep_test_keep_SOURCES = tests/keep/test_keep.c
tests_keep_test_keep_LDADD = libls_keep.la libls_base.la
