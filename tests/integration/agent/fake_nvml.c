/* A driver library in NVML's place, to be found by LD_LIBRARY_PATH: the true binding is on it.
 *
 * It has as many GPUs as FAKE_NVML_PIDS has parts: "12,0" means two, and process 12 computes on the
 * first. What it does not define, the binding reports as a function that is not found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } process_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { unsigned long long total, free, used; } memory_t;

static int pids[16], count;

int nvmlInitWithFlags(unsigned flags) {
  const char *text = getenv("FAKE_NVML_PIDS");
  for (count = 0; text && *text && count < 16; count++) {
    pids[count] = atoi(text);
    text = strchr(text, ',') ? strchr(text, ',') + 1 : "";
  }
  return (int)(flags & 0);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
const char *nvmlErrorString(int code) { return code ? "not supported" : "ok"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  return snprintf(text, size, "570.1") < 0;
}
int nvmlDeviceGetCount_v2(unsigned *number) { *number = (unsigned)count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **handle) {
  *handle = &pids[index];
  return 0;
}
int nvmlDeviceGetUUID(int *handle, char *text, unsigned size) {
  return snprintf(text, size, "GPU-%d", (int)(handle - pids)) < 0;
}
int nvmlDeviceGetName(int *handle, char *text, unsigned size) {
  return snprintf(text, size, "fake %d", (int)(handle - pids)) < 0;
}
int nvmlDeviceGetMemoryInfo(int *handle, memory_t *memory) {
  *memory = (memory_t){8ULL << 30, 6ULL << 30, *handle ? 2ULL << 30 : 0};
  return 0;
}
int nvmlDeviceGetUtilizationRates(int *handle, rates_t *rates) {
  *rates = (rates_t){*handle ? 40 : 0, 0};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(int *handle, unsigned *number, process_t *found) {
  if (!*handle) { *number = 0; return 0; }
  if (!found) { *number = 1; return 7; }
  *number = 1;
  found[0] = (process_t){(unsigned)*handle, 2ULL << 30, 0, 0};
  return 0;
}
