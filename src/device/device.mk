# The interface of device backends, and the loader that opens them.
noinst_LTLIBRARIES += libls_device.la
libls_device_la_SOURCES = src/device/device.h src/device/op.h src/device/loader.c
EXTRA_DIST += src/device/README.md
