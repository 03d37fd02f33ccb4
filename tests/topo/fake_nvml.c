/* A libnvidia-ml of three GPUs that exist nowhere, for tests. FAKE_NVML in the environment chooses a fault.
 * 
 * Compiled with FAKE_OLD it lacks what old drivers lack, with FAKE_BARE all that may be missing. */
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

#ifndef FAKE_BARE
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
    *active = !fault("dead") && link < (handle_of(device) == 3 && fault("linkdown") ? 11u : 12u);
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

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
enum { NOT_SUPPORTED = 3, TOO_SMALL = 7 };

/* Which of three GPUs a fault is of: the third, for most. */
static int bad(void *device, const char *name)
{
    return handle_of(device) == 3 && fault(name);
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter,
                                    unsigned long long *n);
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *info);
int nvmlDeviceGetComputeMode(void *device, unsigned *mode);
int nvmlDeviceGetPersistenceMode(void *device, unsigned *on);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos);
int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *n);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed);
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees);
int nvmlDeviceGetTemperatureThreshold(void *device, int threshold, unsigned *degrees);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatt);
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatt);
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes);

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter, unsigned long long *n)
{
    *n = link;
    if (link == 2 && counter == 1 && bad(device, "linkerror")) {
        /* One more each time; the library is unloaded in between. */
        const char *before = getenv("FAKE_NVML_ERRORS");
        char text[24];
        *n = before ? strtoull(before, NULL, 10) + 1 : 1;
        snprintf(text, sizeof text, "%llu", *n);
        setenv("FAKE_NVML_ERRORS", text, 1);
    }
    return fault("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *info)
{
    if (info->version != 0x02000024)
        return 25;
    info->state = bad(device, "fabric") ? 2 : fault("switches") ? 3 : 0;
    info->status = 0;
    return 0;
}

int nvmlDeviceGetComputeMode(void *device, unsigned *mode)
{
    *mode = bad(device, "prohibited") ? 2 : bad(device, "exclusive") ? 3 : 0;
    return fault("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetPersistenceMode(void *device, unsigned *on)
{
    *on = !bad(device, "sleepy");
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos)
{
    unsigned running = bad(device, "used") ? 2 : 0, room = *n;
    *n = running;
    return running > room || (running && !infos) ? TOO_SMALL : 0;
}

int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = *pending = !fault("noecc");
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *n)
{
    /* 0: since the driver was loaded, 1: ever; corrected ones are many, and do not matter */
    *n = kind != 1 ? 1000 : bad(device, "ecc") ? 3 : counter == 1 && bad(device, "oldecc") ? 7 : 0;
    return fault("noecc") || fault("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 2;
    *pending = bad(device, "remap");
    *failed = bad(device, "norows");
    return fault("noecc") || fault("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending)
{
    (void)pending;
    (void)device;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = bad(device, "hot") ? 0x49 : bad(device, "brake") ? 0x88 : 0x5;
    return fault("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees)
{
    *degrees = sensor != 0 ? 0 : bad(device, "hot") ? 92 : 40;
    return 0;
}

int nvmlDeviceGetTemperatureThreshold(void *device, int threshold, unsigned *degrees)
{
    (void)device;
    *degrees = threshold == 1 ? 90 : 10;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatt)
{
    *milliwatt = bad(device, "capped") ? 300000 : 700000;
    return 0;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatt)
{
    (void)device;
    *milliwatt = 700000;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes)
{
    *lanes = bad(device, "narrow") ? 4 : 16;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes)
{
    (void)device;
    *lanes = 16;
    return 0;
}
#endif
