ckpt_tests = tests/ckpt/test_safetensors tests/ckpt/test_ckpt tests/ckpt/test_crash \
	tests/ckpt/test_python tests/ckpt/test_cli
check_PROGRAMS += $(ckpt_tests)
TESTS += $(ckpt_tests)
ckpt_ldadd = libls_ckpt.la libls_base.la $(JANSSON_LIBS) $(XXHASH_LIBS) -lm
ckpt_cflags = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)

tests_ckpt_test_safetensors_SOURCES = tests/ckpt/test_safetensors.c tests/ckpt/common.h \
	tests/ckpt/samples.h
tests_ckpt_test_safetensors_LDADD = $(ckpt_ldadd)
tests_ckpt_test_ckpt_SOURCES = tests/ckpt/test_ckpt.c tests/ckpt/common.h
tests_ckpt_test_ckpt_CFLAGS = $(ckpt_cflags)
tests_ckpt_test_ckpt_LDADD = $(ckpt_ldadd)
tests_ckpt_test_crash_SOURCES = tests/ckpt/test_crash.c tests/ckpt/common.h
tests_ckpt_test_crash_LDADD = $(ckpt_ldadd)
# $LS_PYTHON (or python3) must import safetensors and numpy; the test says so when it cannot.
tests_ckpt_test_python_SOURCES = tests/ckpt/test_python.c tests/ckpt/common.h tests/ckpt/samples.h
tests_ckpt_test_python_LDADD = $(ckpt_ldadd)
# The command alone: its own flags give its object another name than the one in libls_cli.la.
tests_ckpt_test_cli_SOURCES = tests/ckpt/test_cli.c src/cli/ckpt.c tests/ckpt/common.h
tests_ckpt_test_cli_CFLAGS = $(ckpt_cflags)
tests_ckpt_test_cli_LDADD = $(ckpt_ldadd)

EXTRA_DIST += tests/ckpt/check_safetensors.py
