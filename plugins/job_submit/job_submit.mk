# In slurmctld; only for the version of Slurm whose headers it was built with.
if LS_SLURM
slurmexec_LTLIBRARIES += job_submit_lockstep.la
job_submit_lockstep_la_SOURCES = plugins/job_submit/job_submit.c plugins/spank/gpus.c plugins/spank/gpus.h
job_submit_lockstep_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) -I$(top_srcdir)/plugins
job_submit_lockstep_la_LDFLAGS = $(AM_LDFLAGS) -Wl,-z,noexecstack -module -avoid-version -shared \
	-export-symbols-regex '^(plugin_(name|type|version)|init|fini|job_submit|job_modify)$$'
job_submit_lockstep_la_LIBADD = libls_base.la
endif
EXTRA_DIST += plugins/job_submit/README.md
