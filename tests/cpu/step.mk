# Whole programs on the CPU backend; single kernels are in cpu.mk.
if LS_CPU
check_PROGRAMS += tests/cpu/test_step
TESTS += tests/cpu/test_step
tests_cpu_test_step_SOURCES = tests/cpu/test_step.c $(ls_graph_drivers)
tests_cpu_test_step_LDADD = libls_ref.la libls_model.la libls_graph.la libls_device.la libls_base.la \
	-lm -ldl -lpthread
endif
