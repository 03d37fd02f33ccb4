/* A libnvidia-ml of three GPUs that exist nowhere, for tests. FAKE_NVML in the environment chooses a fault.
 * Compiled with FAKE_OLD it lacks what old drivers lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem;
    char id[32];
};
struct field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, status;
    unsigned value, rest;
};
/* Handles: 1 to 3 are GPUs, 11 and up instances of the second one. */
static long handle_of(void *device)
{
    return (long)device;
}

static int fault(const char *name)
{
    const char *wish = getenv("FAKE_NVML");
    return wish && !strcmp(wish, name);
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int status);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetUUID(void *device, char *out, unsigned size);
int nvmlDeviceGetName(void *device, char *out, unsigned size);
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active);
int nvmlDeviceGetFieldValues(void *device, int n, struct field *values);
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor);

int nvmlInit_v2(void)
{
    return fault("mismatch") ? 18 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int status)
{
    return status == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 3;
    return fault("count") ? 999 : 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(long)(index + 1);
    return index == 0 && fault("lost") ? 15 : 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    static const unsigned bus[] = {0x17, 0x65, 0xca};
    memset(pci, 0, sizeof *pci);
    pci->bus = bus[handle_of(device) - 1];
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{
    long h = handle_of(device);
    snprintf(out, size,
             h > 10 ? "MIG-0000000%ld-aaaa-5bbb-8ccc-000000000000" : "GPU-0000000%ld-aaaa",
             h > 10 ? h - 10 : h);
    return 0;
}

int nvmlDeviceGetName(void *device, char *out, unsigned size)
{
    (void)device;
    snprintf(out, size, fault("garbage") ? "\x01\xff\n" : "NVIDIA Test GPU");
    return 0;
}

#ifndef FAKE_OLD
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    *minor = (unsigned)handle_of(device) - 1;
    return 0;
}
#endif

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = handle_of(device) == 2;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n)
{
    (void)device;
    *n = fault("migs") ? 4000000000U : 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig)
{
    (void)device;
    *mig = (void *)(long)(11 + index);
    return index == 1 || index > 3 ? 6 : 0; /* one place in between is empty */
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    *active = link < 12;
    return handle_of(device) == 2 || link >= 18 ? 2 : 0;
}

int nvmlDeviceGetFieldValues(void *device, int n, struct field *values)
{
    (void)device;
    values[0].type = 1;
    values[0].status = n != 1 || values[0].field != 90 ? 2 : 0;
    values[0].value = 25000;
    return 0;
}
