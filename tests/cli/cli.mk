TESTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_exec.py
dist_check_SCRIPTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_exec.py
EXTRA_DIST += tests/cli/exec_helper.py tests/cli/allreduce.c
