job_tests = tests/job/test_broken tests/job/test_include tests/job/test_print tests/job/test_set \
	tests/job/test_templates tests/job/test_values
check_PROGRAMS += $(job_tests)
TESTS += $(job_tests) tests/job/test_commands.py
dist_check_SCRIPTS += tests/job/test_commands.py
job_ldadd = libls_job.la libls_base.la $(LIBCONFIG_LIBS) -lm

tests_job_test_broken_SOURCES = tests/job/test_broken.c tests/job/files.h \
	tests/job/broken_rules.h tests/job/broken_syntax.h tests/job/broken_values.h
tests_job_test_broken_LDADD = $(job_ldadd)
tests_job_test_include_SOURCES = tests/job/test_include.c tests/job/files.h
tests_job_test_include_LDADD = $(job_ldadd)
tests_job_test_print_SOURCES = tests/job/test_print.c tests/job/files.h
tests_job_test_print_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_job_test_print_LDADD = $(job_ldadd) $(JANSSON_LIBS)
tests_job_test_set_SOURCES = tests/job/test_set.c tests/job/files.h
tests_job_test_set_LDADD = $(job_ldadd)
tests_job_test_templates_SOURCES = tests/job/test_templates.c tests/job/files.h \
	src/cli/templates.c src/cli/templates.h
tests_job_test_templates_LDADD = $(job_ldadd)
tests_job_test_values_SOURCES = tests/job/test_values.c tests/job/files.h
tests_job_test_values_LDADD = $(job_ldadd)
