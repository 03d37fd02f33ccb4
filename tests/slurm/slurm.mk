# Tests on a real Slurm cluster that they start themselves; they skip themselves where Slurm is absent.
# With a sanitizer run those that drive Lockstep's own code in C between nodes: the launcher and the keepers
# (exec), the worker with all its layouts and faults (run), the preflight (check), what is read of Slurm (topo).
slurm_tests = tests/slurm/test_check.py tests/slurm/test_exec.py tests/slurm/test_run.py tests/slurm/test_topo.py
TESTS += $(slurm_tests)
# Slurm's own programs cannot load a plugin that needs a sanitizer's run time.
slurm_plain = tests/slurm/test_spank.py tests/slurm/test_groups.py
# `lockstep exec` as in test_exec.py, with PyTorch and others as the program.
slurm_plain += tests/slurm/test_frameworks.py
# Batch scripts: `lockstep run` and `lockstep exec` again, what differs is in the shell.
slurm_plain += tests/slurm/test_templates.py
# The cluster's own script; of Lockstep only what test_topo.py runs too.
slurm_plain += tests/slurm/test_cluster.py
plain_tests += $(slurm_plain)
dist_check_SCRIPTS += $(slurm_tests) $(slurm_plain) tests/slurm/cluster
EXTRA_DIST += tests/slurm/README.md tests/slurm/cluster.py tests/slurm/jobs.py

check_PROGRAMS += tests/slurm/show_slurm
tests_slurm_show_slurm_SOURCES = tests/slurm/show_slurm.c
tests_slurm_show_slurm_LDADD = libls_topo.la libls_base.la

# What a container plugin does to tasks, for test_spank.py.
if LS_SLURM
check_LTLIBRARIES += hide_files.la
hide_files_la_SOURCES = tests/slurm/hide_files.c
hide_files_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
hide_files_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
endif
