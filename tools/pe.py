"""Looks into a Windows program: for which machine it is, how it is hardened, and what it asks of Windows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pefile

# The oldest Windows that programs have to start on: 10.0.14393.
FLOOR = "Windows 10 1607"
FLOOR_VERSION = (10, 0)

AMD64 = 0x8664  # IMAGE_FILE_MACHINE_AMD64
PE32_PLUS = 0x20B  # IMAGE_NT_OPTIONAL_HDR64_MAGIC
RELOCS_STRIPPED = 0x0001
IMPORTS = {
    "DIRECTORY_ENTRY_IMPORT": pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_IMPORT"],
    "DIRECTORY_ENTRY_DELAY_IMPORT": pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT"],
}
HARDENING = {0x0020: "HIGH_ENTROPY_VA", 0x0040: "DYNAMIC_BASE", 0x0100: "NX_COMPAT"}

# The C library is a part of Windows 10 from the first; these contracts of it are that old.
C_LIBRARY = re.compile(r"api-ms-win-crt-[a-z]+-l1-1-0\.dll")

# What is asked of each DLL of the system. Windows 10 1607 has all of it: the newest are of Windows 8 (CreateFile2,
# CreateFileMappingFromApp, MapViewOfFileFromApp, GetSystemTimePreciseAsFileTime, SetThreadInformation), most of Windows
# 2000 to 7. A call that is not listed is a fault until somebody has looked up its age in Microsoft's documentation.
CALLS = {
    library: frozenset(calls.split())
    for library, calls in {
        "advapi32.dll": """
            AdjustTokenPrivileges LookupPrivilegeValueW OpenProcessToken RegCloseKey RegGetValueW RegOpenKeyExA
            RegQueryValueExA
        """,
        "kernel32.dll": """
            AcquireSRWLockExclusive AcquireSRWLockShared AddVectoredExceptionHandler AreFileApisANSI CancelIoEx
            CloseHandle CreateDirectoryW CreateEventA CreateEventW CreateFile2 CreateFileA CreateFileMappingA
            CreateFileMappingFromApp CreateFileMappingNumaW CreateFileW CreateHardLinkW CreateMutexA CreateNamedPipeA
            CreatePipe CreateProcessW CreateSymbolicLinkW CreateThread CreateToolhelp32Snapshot DeleteCriticalSection
            DeleteProcThreadAttributeList DeviceIoControl EnterCriticalSection FindClose FindFirstFileW FindNextFileW
            FlsAlloc FlsSetValue FormatMessageA FreeEnvironmentStringsW FreeLibrary GetActiveProcessorCount
            GetCommandLineW GetConsoleMode GetConsoleScreenBufferInfo GetCurrentDirectoryW GetCurrentProcess
            GetCurrentProcessId GetCurrentProcessorNumberEx GetCurrentThread GetCurrentThreadId GetEnvironmentStringsW
            GetEnvironmentVariableW GetExitCodeProcess GetFileAttributesW GetFileInformationByHandle
            GetFileInformationByHandleEx GetFileSizeEx GetFileType GetFinalPathNameByHandleW GetFullPathNameW
            GetLargePageMinimum GetLastError
            GetLogicalProcessorInformationEx GetModuleFileNameW GetModuleHandleW GetNumaAvailableMemoryNodeEx GetOEMCP
            GetOverlappedResult GetProcAddress GetProcessAffinityMask GetProcessGroupAffinity GetProcessTimes
            GetProcessWorkingSetSize GetStdHandle GetSystemInfo GetSystemTimePreciseAsFileTime GetTempPathW
            GetThreadGroupAffinity GetThreadId GetThreadIdealProcessorEx GetThreadTimes GetTickCount64
            GlobalMemoryStatusEx InitOnceExecuteOnce InitializeConditionVariable InitializeCriticalSection
            InitializeProcThreadAttributeList InitializeSRWLock K32GetProcessMemoryInfo K32QueryWorkingSetEx
            LeaveCriticalSection LoadLibraryW LocalFree MapViewOfFile MapViewOfFileExNuma MapViewOfFileFromApp
            MoveFileExW MultiByteToWideChar OpenProcess OpenThread PeekNamedPipe Process32FirstW Process32NextW
            QueryPerformanceCounter QueryPerformanceFrequency RaiseException ReOpenFile ReadConsoleInputW ReadFile
            ReleaseSRWLockExclusive ReleaseSRWLockShared RtlCaptureContext RtlLookupFunctionEntry RtlRestoreContext
            RtlUnwindEx RtlVirtualUnwind SearchPathW SetConsoleCP SetConsoleCtrlHandler SetConsoleCursorPosition
            SetConsoleMode SetConsoleOutputCP SetEndOfFile SetEnvironmentVariableA SetErrorMode
            SetFileInformationByHandle SetFilePointerEx SetHandleInformation SetLastError SetNamedPipeHandleState
            SetPriorityClass SetProcessWorkingSetSize SetThreadAffinityMask SetThreadGroupAffinity
            SetThreadIdealProcessorEx SetThreadInformation SetThreadPriority SetUnhandledExceptionFilter Sleep
            SleepConditionVariableSRW TerminateProcess TlsAlloc TlsFree TlsGetValue TlsSetValue
            TryAcquireSRWLockExclusive UnmapViewOfFile UpdateProcThreadAttribute VirtualAlloc VirtualAllocExNuma
            VirtualFree VirtualLock VirtualProtect VirtualQuery WaitForSingleObject WaitForSingleObjectEx
            WakeAllConditionVariable WakeConditionVariable WideCharToMultiByte WriteConsoleA WriteConsoleInputW
            WriteFile
        """,
        "shell32.dll": "CommandLineToArgvW",
        "ws2_32.dll": """
            WSAAccept WSACleanup WSAGetLastError WSAPoll WSASocketW WSAStartup bind closesocket connect freeaddrinfo
            getaddrinfo getnameinfo getpeername getsockname getsockopt htonl htons inet_pton ioctlsocket listen ntohs
            recv send setsockopt shutdown socket
        """,
    }.items()
}

# What Windows has had only since later, by Microsoft's documentation; GetProcAddress gets it where it is there.
LATER = {
    "CreateFileMapping2": "build 20348",
    "CreatePseudoConsole": "1809",
    "GetNumaNodeProcessorMask2": "build 20348",
    "GetProcessDefaultCpuSetMasks": "build 20348",
    "GetTempPath2W": "build 20348",
    "GetThreadDescription": "1703",  # 1607 has it in KernelBase.dll only, which is not what a program links to
    "GetThreadSelectedCpuSetMasks": "build 20348",
    "MapViewOfFile3": "1803",
    "MapViewOfFileNuma2": "1703",
    "SetProcessDefaultCpuSetMasks": "build 20348",
    "SetThreadDescription": "1703",
    "SetThreadSelectedCpuSetMasks": "build 20348",
    "UnmapViewOfFile2": "1703",
    "VirtualAlloc2": "1803",
}


def faults(member: str, content: bytes, ours: set[str]) -> Iterator[str]:
    """What is wrong with a program or library for Windows; `ours`: names of the files that lie beside it."""
    try:
        file = pefile.PE(data=content, fast_load=True)
        imported = imports(file)
    except pefile.PEFormatError as error:
        yield f"{member} is no Windows program: {error}"
        return
    yield from headers(member, file)
    beside = {name.lower() for name in ours}
    for library, call in imported:
        if library not in beside:
            yield from asked_of_windows(member, library, call)


def headers(member: str, file: pefile.PE) -> Iterator[str]:
    """For 64-bit x86, for a Windows as old as the floor, loaded at random addresses, with data that cannot be run."""
    if (file.FILE_HEADER.Machine, file.OPTIONAL_HEADER.Magic) != (AMD64, PE32_PLUS):
        yield f"{member} is no PE32+ program for x86-64"
    wanted = (file.OPTIONAL_HEADER.MajorSubsystemVersion, file.OPTIONAL_HEADER.MinorSubsystemVersion)
    if wanted > FLOOR_VERSION:
        yield f"{member} is for Windows {wanted[0]}.{wanted[1]} and later, which {FLOOR} is not"
    for flag, name in HARDENING.items():
        if not file.OPTIONAL_HEADER.DllCharacteristics & flag:
            yield f"{member} has no {name}"
    if file.FILE_HEADER.Characteristics & RELOCS_STRIPPED:
        yield f"{member} cannot be loaded at random addresses: its relocations have been stripped"


def imports(file: pefile.PE) -> list[tuple[str, str]]:
    """The library, in small letters, and the name of each call that the loader has to find, now or at first use.

    "" is a call by number.
    """
    file.parse_data_directories(list(IMPORTS.values()))
    return [
        (library.dll.decode("ascii", "replace").lower(), (call.name or b"").decode("ascii", "replace"))
        for entry in IMPORTS
        for library in getattr(file, entry, [])
        for call in library.imports
    ]


def asked_of_windows(member: str, library: str, call: str) -> Iterator[str]:
    if C_LIBRARY.fullmatch(library):
        return
    if library not in CALLS:
        yield f"{member} needs {library}, which is neither in the wheel nor a system library"
    elif call in LATER:
        yield f"{member} imports {call}, which is newer than {FLOOR} (since {LATER[call]}): look it up at run time"
    elif call not in CALLS[library]:
        what = call or "a call by number"
        yield f"{member} imports {what} of {library}; look up since when Windows has it, and list it in tools/pe.py"
