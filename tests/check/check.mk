check_tests = tests/check/test_choice tests/check/test_compare tests/check/test_devices tests/check/test_gpu_bw \
	tests/check/test_local tests/check/test_pack tests/check/test_pairs tests/check/test_run tests/check/test_verbs
check_PROGRAMS += $(check_tests)
TESTS += $(check_tests) tests/check/test_check.py
dist_check_SCRIPTS += tests/check/test_check.py

check_libs = libls_check.la libls_wire.la libls_ckpt.la libls_data.la libls_comm.la libls_model.la \
	libls_graph.la libls_device.la libls_topo_host.la libls_topo.la libls_job.la libls_base.la $(PMIX_LIBS) $(UCX_LIBS) \
	$(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(LIBDEFLATE_LIBS) $(XXHASH_LIBS)
tests_check_test_choice_SOURCES = tests/check/test_choice.c tests/check/local.h
tests_check_test_choice_LDADD = $(check_libs)
tests_check_test_compare_SOURCES = tests/check/test_compare.c
tests_check_test_compare_LDADD = $(check_libs)
tests_check_test_devices_SOURCES = tests/check/test_devices.c tests/check/local.h tests/topo/machines.h
tests_check_test_devices_LDADD = $(check_libs)
tests_check_test_gpu_bw_SOURCES = tests/check/test_gpu_bw.c tests/check/local.h
tests_check_test_gpu_bw_LDADD = $(check_libs)
tests_check_test_local_SOURCES = tests/check/test_local.c tests/check/local.h
tests_check_test_local_LDADD = $(check_libs)
tests_check_test_pack_SOURCES = tests/check/test_pack.c
tests_check_test_pack_LDADD = $(check_libs)
tests_check_test_pairs_SOURCES = tests/check/test_pairs.c
tests_check_test_pairs_LDADD = $(check_libs)
tests_check_test_run_SOURCES = tests/check/test_run.c tests/check/local.h
tests_check_test_run_LDADD = $(check_libs)
tests_check_test_verbs_SOURCES = tests/check/test_verbs.c tests/check/local.h
tests_check_test_verbs_LDADD = $(check_libs)

# Faults for the programs of the Python tests, by LD_PRELOAD; never part of what is installed.
check_LTLIBRARIES += tests/check/fault.la
tests_check_fault_la_SOURCES = tests/check/fault.c
tests_check_fault_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
# Their names are what dlopen looks for.
check_LTLIBRARIES += tests/check/libnccl.la tests/check/libcudart.la
tests_check_libnccl_la_SOURCES = tests/check/fake_version.c
tests_check_libnccl_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_VERSION=22105
tests_check_libnccl_la_LDFLAGS = $(AM_LDFLAGS) -version-number 2:0:0 -shared -rpath /nowhere
tests_check_libcudart_la_SOURCES = tests/check/fake_version.c
tests_check_libcudart_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_VERSION=13010
tests_check_libcudart_la_LDFLAGS = $(AM_LDFLAGS) -version-number 13:0:0 -shared -rpath /nowhere
check_LTLIBRARIES += tests/check/libfakeverbs.la tests/check/libfakeverbs_old.la
tests_check_libfakeverbs_la_SOURCES = tests/check/fake_verbs.c
tests_check_libfakeverbs_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_check_libfakeverbs_old_la_SOURCES = tests/check/fake_verbs.c
tests_check_libfakeverbs_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_OLD
tests_check_libfakeverbs_old_la_LDFLAGS = $(tests_check_libfakeverbs_la_LDFLAGS)
check_LTLIBRARIES += tests/check/libcuda.la
tests_check_libcuda_la_SOURCES = tests/check/fake_cuda.c tests/check/ptx.c tests/check/ptx.h
tests_check_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -version-number 1:0:0 -shared -rpath /nowhere
tests_check_libcuda_la_LIBADD = -lm
check_LTLIBRARIES += tests/check/libfakecuda_old.la
tests_check_libfakecuda_old_la_SOURCES = $(tests_check_libcuda_la_SOURCES)
tests_check_libfakecuda_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_OLD
tests_check_libfakecuda_old_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_check_libfakecuda_old_la_LIBADD = -lm
