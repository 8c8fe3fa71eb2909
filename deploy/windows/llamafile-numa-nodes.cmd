@echo off
rem One server on each NUMA node, started with Windows, and again within a minute wherever it ended: a scheduled task each. As
rem administrator:
rem
rem   llamafile-numa-nodes install C:\models\model.gguf         nodes 0 and 1
rem   llamafile-numa-nodes install C:\models\model.gguf 0 1 2   these nodes
rem   llamafile-numa-nodes remove 0 1 2
rem
rem Node N is at http://127.0.80.N:8080. deploy/nginx puts all of them behind one address, on Windows, too.
rem The tasks run as LOCAL SERVICE, which has to be able to read the model and the program: what pip installs for all users
rem it can, what lies below a user's folder it cannot. Names are to be ASCII.
rem LLAMAFILE_NUMA        the program; llamafile-numa.exe on the PATH, unless given
rem LLAMAFILE_NUMA_FLAGS  more flags of the server; --numa-strict, unless given
setlocal EnableExtensions DisableDelayedExpansion

set "program=%LLAMAFILE_NUMA%"
if not defined program for %%P in (llamafile-numa.exe) do set "program=%%~$PATH:P"
set "flags=%LLAMAFILE_NUMA_FLAGS%"
if not defined flags set "flags=--numa-strict"
set "nodes="
set "what=%~1"
set "model=%~f2"
set "file=%~2"
if not defined file set "file=none given"

if "%what%"=="remove" goto nodes
if not "%what%"=="install" (
    echo llamafile-numa-nodes: error: "%what%" is not possible; "install MODEL [NODE...]" and "remove [NODE...]" are 1>&2
    exit /b 2
)
if not exist "%program%" (
    echo llamafile-numa-nodes: error: there is no program "%program%"; set LLAMAFILE_NUMA to the path of llamafile-numa.exe 1>&2
    exit /b 2
)
if not exist "%file%" call :archive "%file%"
if not exist "%file%" (
    echo llamafile-numa-nodes: error: there is no model "%~2"; a GGUF file or a .llamafile is needed 1>&2
    exit /b 2
)
if exist "%file%\*" (
    echo llamafile-numa-nodes: error: "%~2" is a folder; a GGUF file or a .llamafile is needed 1>&2
    exit /b 2
)
shift

rem All nodes are looked at before anything is changed.
:nodes
shift
if "%~1"=="" goto all
for /f "delims=0123456789" %%X in ("%~1") do (
    echo llamafile-numa-nodes: error: "%~1" is not a node; a number as llamafile-numa --numa-list shows it is possible 1>&2
    exit /b 2
)
set "nodes=%nodes% %~1"
goto nodes

:all
if not defined nodes set "nodes=0 1"
set "failed=0"
for %%N in (%nodes%) do call :one %%N
exit /b %failed%

:one
call :%what% %1
if errorlevel 1 set "failed=1"
exit /b 0

rem ARCHIVE of ARCHIVE@MEMBER.
:archive
for /f "tokens=1 delims=@" %%F in ("%~1") do set "file=%%F"
exit /b 0

:install
set "task=%TEMP%\llamafile-numa-%1.xml"
call :task %1 > "%task%"
schtasks /Create /F /TN "llamafile-numa node %1" /XML "%task%"
set "code=%ERRORLEVEL%"
del "%task%"
if "%code%"=="0" schtasks /Run /TN "llamafile-numa node %1"
if "%code%"=="0" set "code=%ERRORLEVEL%"
if "%code%"=="0" echo Node %1 serves once http://127.0.80.%1:8080/health says ok, which a large model takes minutes for.
exit /b %code%

:remove
schtasks /End /TN "llamafile-numa node %1"
schtasks /Delete /F /TN "llamafile-numa node %1"
exit /b %ERRORLEVEL%

rem The task of a node. Without the settings here Windows would end it after three days, and on battery. What Windows calls
rem RestartOnFailure is for tasks that cannot be started: that of one that ended is tried each minute, and left alone while it
rem runs. S-1-5-19 is LOCAL SERVICE, which has no password.
:task
echo ^<?xml version="1.0"?^>
echo ^<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task"^>
echo   ^<RegistrationInfo^>^<Description^>llamafile-numa on NUMA node %1^</Description^>^</RegistrationInfo^>
echo   ^<Triggers^>
echo     ^<BootTrigger^>^<Enabled^>true^</Enabled^>^</BootTrigger^>
echo     ^<TimeTrigger^>
echo       ^<Enabled^>true^</Enabled^>
echo       ^<StartBoundary^>2020-01-01T00:00:00^</StartBoundary^>
echo       ^<Repetition^>^<Interval^>PT1M^</Interval^>^</Repetition^>
echo     ^</TimeTrigger^>
echo   ^</Triggers^>
echo   ^<Principals^>^<Principal id="Server"^>^<UserId^>S-1-5-19^</UserId^>^</Principal^>^</Principals^>
echo   ^<Settings^>
echo     ^<MultipleInstancesPolicy^>IgnoreNew^</MultipleInstancesPolicy^>
echo     ^<DisallowStartIfOnBatteries^>false^</DisallowStartIfOnBatteries^>
echo     ^<StopIfGoingOnBatteries^>false^</StopIfGoingOnBatteries^>
echo     ^<ExecutionTimeLimit^>PT0S^</ExecutionTimeLimit^>
echo     ^<Priority^>4^</Priority^>
echo   ^</Settings^>
echo   ^<Actions Context="Server"^>^<Exec^>
echo     ^<Command^>"%program:&=&amp;%"^</Command^>
echo     ^<Arguments^>--server --numa-node %1 --host 127.0.80.%1 --port 8080 -m "%model:&=&amp;%" %flags:&=^&amp;%^</Arguments^>
echo   ^</Exec^>^</Actions^>
echo ^</Task^>
exit /b 0
