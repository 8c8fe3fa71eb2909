// The Win32 calls that are rare, newer than the oldest Windows there is to run on (Windows 10 1607), or answered by a
// recorded machine in tests: one table of pointers, called as win32.Name(...). Whatever else is called directly has been
// in every Windows for ages.
#pragma once

#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <psapi.h>

// Since Windows 7: never null.
#define WIN32_ALWAYS(X)                                                                                               \
    X(GetLogicalProcessorInformationEx) X(GetNumaAvailableMemoryNodeEx) X(GlobalMemoryStatusEx)                       \
    X(GetProcessAffinityMask) X(GetProcessGroupAffinity)                                                              \
    X(GetThreadGroupAffinity) X(SetThreadGroupAffinity) X(GetThreadIdealProcessorEx) X(SetThreadIdealProcessorEx)     \
    X(AdjustTokenPrivileges) X(GetLargePageMinimum) X(VirtualAllocExNuma)                                             \
    X(CreateFileMappingNumaW) X(MapViewOfFileExNuma) X(K32QueryWorkingSetEx) X(ReOpenFile) X(ReadFile)

// Looked up at run time: null where this Windows has no such call. Since Windows 8, 10 and 10.
#define WIN32_PERHAPS(X) X(PrefetchVirtualMemory) X(GetSystemCpuSetInformation) X(SetProcessDefaultCpuSets)

#define WIN32_POINTER(name) __typeof__(name) * name;
struct win32 {
    WIN32_ALWAYS(WIN32_POINTER)
    WIN32_PERHAPS(WIN32_POINTER)
    // Since Windows 11 and Server 2022; headers declare it for these only.
    BOOL (WINAPI * SetProcessDefaultCpuSetMasks)(HANDLE process, GROUP_AFFINITY * masks, USHORT count);
};
extern struct win32 win32;

// Fill the table, once: what a test has put into it since stays.
void win32_bind(void);

// --- what prim_windows.c has for others ---

int win32_error(void); // the last error as a negative errno
// Records of one kind from GetLogicalProcessorInformationEx, to be freed; null with *size 0 where there are none.
void * win32_records(LOGICAL_PROCESSOR_RELATIONSHIP kind, size_t * size);
// Bytes of a large page, 0 where this process cannot have any.
size_t win32_large_page(void);
// Ask for these CPUs for every thread that does not ask itself (CPU sets).
struct node_set;
void win32_default_cpus(const struct node_set * cpus);
