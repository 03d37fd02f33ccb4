TESTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_zero.py
dist_check_SCRIPTS += tests/cli/test_run.py tests/cli/test_ranks.py tests/cli/test_zero.py
