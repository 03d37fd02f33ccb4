/* A libnccl.so.2, and a libcudart.so.13, that know their versions, and nothing else. */
int fake_version = FAKE_VERSION;
int ncclGetVersion(int *version);
int cudaRuntimeGetVersion(int *version);

int ncclGetVersion(int *version)
{
    *version = fake_version;
    return fake_version < 0; /* ncclUnhandledCudaError, say */
}

int cudaRuntimeGetVersion(int *version)
{
    *version = fake_version;
    return fake_version < 0;
}
