topo_tests = tests/topo/test_hostlist tests/topo/test_slurm tests/topo/test_scontrol \
	tests/topo/test_machine tests/topo/test_rules tests/topo/test_site tests/topo/test_nvml
check_PROGRAMS += $(topo_tests)
TESTS += $(topo_tests) tests/topo/test_hosts.py tests/topo/test_show.py
dist_check_SCRIPTS += tests/topo/test_hosts.py tests/topo/test_show.py

tests_topo_test_hostlist_SOURCES = tests/topo/test_hostlist.c
tests_topo_test_hostlist_LDADD = libls_topo.la libls_base.la
tests_topo_test_slurm_SOURCES = tests/topo/test_slurm.c
tests_topo_test_slurm_LDADD = libls_topo.la libls_base.la
# Compares with Slurm's own scontrol; skips itself where there is none.
tests_topo_test_scontrol_SOURCES = tests/topo/test_scontrol.c
tests_topo_test_scontrol_LDADD = libls_topo.la libls_base.la
tests_topo_test_machine_SOURCES = tests/topo/test_machine.c tests/topo/machines.h
tests_topo_test_machine_LDADD = libls_topo_host.la libls_topo.la libls_base.la
tests_topo_test_rules_SOURCES = tests/topo/test_rules.c tests/topo/machines.h
tests_topo_test_rules_LDADD = libls_topo_host.la libls_topo.la libls_base.la
tests_topo_test_site_SOURCES = tests/topo/test_site.c
tests_topo_test_site_LDADD = libls_topo_host.la libls_topo.la libls_base.la
tests_topo_test_nvml_SOURCES = tests/topo/test_nvml.c tests/topo/machines.h
tests_topo_test_nvml_LDADD = libls_topo_host.la libls_topo.la libls_base.la
# -rpath makes libtool build a shared object of what is never installed.
check_LTLIBRARIES += tests/topo/libfakenvml.la tests/topo/libfakenvml_old.la \
	tests/topo/libfakenvml_bare.la
tests_topo_libfakenvml_la_SOURCES = tests/topo/fake_nvml.c
tests_topo_libfakenvml_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_topo_libfakenvml_old_la_SOURCES = tests/topo/fake_nvml.c
tests_topo_libfakenvml_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_OLD
tests_topo_libfakenvml_old_la_LDFLAGS = $(tests_topo_libfakenvml_la_LDFLAGS)
tests_topo_libfakenvml_bare_la_SOURCES = tests/topo/fake_nvml.c
tests_topo_libfakenvml_bare_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_BARE
tests_topo_libfakenvml_bare_la_LDFLAGS = $(tests_topo_libfakenvml_la_LDFLAGS)
EXTRA_DIST += tests/topo/trees
