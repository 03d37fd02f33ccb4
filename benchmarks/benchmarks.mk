# Measured by benchmarks/run, never by a test. `make benchmarks/peak` builds the yardstick.
if LS_CPU
EXTRA_PROGRAMS += benchmarks/peak
benchmarks_peak_SOURCES = benchmarks/peak.c
benchmarks_peak_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(DNNL_CFLAGS)
benchmarks_peak_LDADD = libls_base.la $(DNNL_LIBS)
CLEANFILES += benchmarks/peak
endif
EXTRA_PROGRAMS += benchmarks/allreduce
benchmarks_allreduce_SOURCES = benchmarks/allreduce.c
benchmarks_allreduce_LDADD = libls_comm.la libls_base.la $(UCX_LIBS)
CLEANFILES += benchmarks/allreduce
EXTRA_DIST += benchmarks/peer_allreduce_mpi.c benchmarks/peer_allreduce_gloo.py \
	benchmarks/peer_boot_mpi.c
EXTRA_DIST += benchmarks/run benchmarks/peer_mlp.py benchmarks/peer_start.py benchmarks/README.md
