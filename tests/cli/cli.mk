TESTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_zero.py tests/cli/test_exec.py
# `lockstep exec` as test_exec.py starts it, with programs of hundreds of megabytes that are not ours.
plain_tests += tests/cli/test_frameworks.py
# Where `make install` puts files, and what runs from there; the code that finds them is test_relocate's.
plain_tests += tests/cli/test_install.py
dist_check_SCRIPTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_zero.py tests/cli/test_exec.py tests/cli/test_frameworks.py tests/cli/test_install.py
EXTRA_DIST += tests/frameworks.py
EXTRA_DIST += tests/cli/exec_helper.py tests/cli/allreduce.c tests/cli/ddp.py tests/cli/mwms.py tests/cli/jaxrank.py
check_PROGRAMS += tests/cli/test_relocate
TESTS += tests/cli/test_relocate
tests_cli_test_relocate_SOURCES = tests/cli/test_relocate.c src/cli/relocate.c
