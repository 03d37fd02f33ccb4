# Measured by benchmarks/run, never by a test. `make benchmarks/peak` builds the yardstick.
if LS_CPU
EXTRA_PROGRAMS += benchmarks/peak
benchmarks_peak_SOURCES = benchmarks/peak.c
benchmarks_peak_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(DNNL_CFLAGS)
benchmarks_peak_LDADD = libls_base.la $(DNNL_LIBS)
CLEANFILES += benchmarks/peak
endif
EXTRA_DIST += benchmarks/run benchmarks/peer_mlp.py benchmarks/peer_start.py benchmarks/README.md
