# Readers of what comes from outside. As a plain test each target runs its corpus, cut short and with
# flipped bits (driver.c); with --enable-fuzz (clang) the same files become libFuzzer programs.

fuzz_targets = tests/fuzz/fuzz_job tests/fuzz/fuzz_idx tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_manifest tests/fuzz/fuzz_hostlist tests/fuzz/fuzz_slurm \
	tests/fuzz/fuzz_topo tests/fuzz/fuzz_check $(fuzz_plugins)

# Readers of the Slurm plugins, whose header needs Slurm's.
if LS_SLURM
fuzz_plugins = tests/fuzz/fuzz_spank
tests_fuzz_fuzz_spank_SOURCES = tests/fuzz/fuzz_spank.c plugins/spank/args.c plugins/spank/gpus.c \
	$(fuzz_driver)
tests_fuzz_fuzz_spank_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) -I$(top_srcdir)/plugins \
	-DLS_SYSCONFDIR='"$(sysconfdir)"'
tests_fuzz_fuzz_spank_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_spank_LDADD = libls_topo.la libls_base.la
else
fuzz_plugins =
endif

if LS_FUZZ
check_PROGRAMS += $(fuzz_targets)
fuzz_driver =
fuzz_ldflags = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
check_PROGRAMS += $(fuzz_targets)
TESTS += $(fuzz_targets)
fuzz_driver = tests/fuzz/driver.c
fuzz_ldflags = $(AM_LDFLAGS)
endif

tests_fuzz_fuzz_job_SOURCES = tests/fuzz/fuzz_job.c $(fuzz_driver)
tests_fuzz_fuzz_job_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_job_LDADD = libls_job.la libls_base.la $(LIBCONFIG_LIBS)

tests_fuzz_fuzz_idx_SOURCES = tests/fuzz/fuzz_idx.c $(fuzz_driver)
tests_fuzz_fuzz_idx_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_idx_LDADD = libls_data.la libls_base.la $(LIBDEFLATE_LIBS)

tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(fuzz_driver)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_safetensors_LDADD = libls_ckpt.la libls_base.la $(JANSSON_LIBS) $(XXHASH_LIBS)

tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/fuzz_manifest.c $(fuzz_driver)
tests_fuzz_fuzz_manifest_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_manifest_LDADD = libls_ckpt.la libls_base.la $(JANSSON_LIBS) $(XXHASH_LIBS)

tests_fuzz_fuzz_hostlist_SOURCES = tests/fuzz/fuzz_hostlist.c $(fuzz_driver)
tests_fuzz_fuzz_hostlist_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_hostlist_LDADD = libls_topo.la libls_base.la

tests_fuzz_fuzz_slurm_SOURCES = tests/fuzz/fuzz_slurm.c $(fuzz_driver)
tests_fuzz_fuzz_slurm_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_slurm_LDADD = libls_topo.la libls_base.la

tests_fuzz_fuzz_topo_SOURCES = tests/fuzz/fuzz_topo.c $(fuzz_driver)
tests_fuzz_fuzz_topo_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_topo_LDADD = libls_topo_host.la libls_topo.la libls_base.la

tests_fuzz_fuzz_check_SOURCES = tests/fuzz/fuzz_check.c $(fuzz_driver)
tests_fuzz_fuzz_check_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_check_LDADD = $(check_libs)

.PHONY: fuzz-targets
fuzz-targets: $(fuzz_targets)

EXTRA_DIST += tests/fuzz/corpus tests/fuzz/driver.c
