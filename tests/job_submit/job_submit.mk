if LS_SLURM
check_PROGRAMS += tests/job_submit/test_job_submit
TESTS += tests/job_submit/test_job_submit
tests_job_submit_test_job_submit_SOURCES = tests/job_submit/test_job_submit.c
tests_job_submit_test_job_submit_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_job_submit_test_job_submit_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_job_submit_test_job_submit_LDADD = libls_base.la
endif
