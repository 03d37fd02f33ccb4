topo_tests = tests/topo/test_hostlist tests/topo/test_slurm tests/topo/test_scontrol \
	tests/topo/test_machine tests/topo/test_rules tests/topo/test_site
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
EXTRA_DIST += tests/topo/trees
