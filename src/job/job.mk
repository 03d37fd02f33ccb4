noinst_LTLIBRARIES += libls_job.la
libls_job_la_SOURCES = src/job/job.h 
