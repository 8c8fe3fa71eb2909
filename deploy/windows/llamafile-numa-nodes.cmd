@echo off
rem One server on each NUMA node, started with Windows and started again if it fails: a scheduled task each. As administrator:
rem
rem   llamafile-numa-nodes install C:\models\model.gguf         nodes 0 and 1
rem   llamafile-numa-nodes install C:\models\model.gguf 0 1 2   these nodes
rem   llamafile-numa-nodes remove 0 1 2
rem
rem Node N is at http://127.0.80.N:8080. deploy/nginx puts all of them behind one address, on Windows, too.
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

if "%what%"=="remove" goto nodes
if not "%what%"=="install" (
    echo llamafile-numa-nodes: error: '%what%' is not possible; 'install MODEL [NODE...]' and 'remove [NODE...]' are 1>&2
    exit /b 2
)
if not exist "%program%" (
    echo llamafile-numa-nodes: error: there is no program '%program%'; set LLAMAFILE_NUMA to the path of llamafile-numa.exe 1>&2
    exit /b 2
)
if not exist "%~2" (
    echo llamafile-numa-nodes: error: there is no model '%~2'; a GGUF file is needed 1>&2
    exit /b 2
)
shift

rem All nodes are looked at before anything is changed.
:nodes
shift
if "%~1"=="" goto all
for /f "delims=0123456789" %%X in ("%~1") do (
    echo llamafile-numa-nodes: error: '%~1' is not a node; a number as llamafile-numa --numa-list shows it is possible 1>&2
    exit /b 2
)
set "nodes=%nodes% %~1"
goto nodes

:all
if not defined nodes set "nodes=0 1"
for %%N in (%nodes%) do (
    call :%what% %%N
    if errorlevel 1 exit /b 1
)
exit /b 0

:install
set "task=%TEMP%\llamafile-numa-%1.xml"
call :task %1 > "%task%"
schtasks /Create /F /TN "llamafile-numa node %1" /XML "%task%"
set "code=%ERRORLEVEL%"
del "%task%"
if "%code%"=="0" schtasks /Run /TN "llamafile-numa node %1"
if "%code%"=="0" set "code=%ERRORLEVEL%"
exit /b %code%

:remove
schtasks /End /TN "llamafile-numa node %1"
schtasks /Delete /F /TN "llamafile-numa node %1"
exit /b %ERRORLEVEL%

rem The task of a node. Without the settings here Windows would end it after three days, and on battery.
rem S-1-5-19 is LOCAL SERVICE, which has no password; it must be able to read the model and the program.
:task
echo ^<?xml version="1.0"?^>
echo ^<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task"^>
echo   ^<RegistrationInfo^>^<Description^>llamafile-numa on NUMA node %1^</Description^>^</RegistrationInfo^>
echo   ^<Triggers^>^<BootTrigger^>^<Enabled^>true^</Enabled^>^</BootTrigger^>^</Triggers^>
echo   ^<Principals^>^<Principal id="Server"^>^<UserId^>S-1-5-19^</UserId^>^</Principal^>^</Principals^>
echo   ^<Settings^>
echo     ^<MultipleInstancesPolicy^>IgnoreNew^</MultipleInstancesPolicy^>
echo     ^<DisallowStartIfOnBatteries^>false^</DisallowStartIfOnBatteries^>
echo     ^<StopIfGoingOnBatteries^>false^</StopIfGoingOnBatteries^>
echo     ^<RestartOnFailure^>^<Interval^>PT1M^</Interval^>^<Count^>255^</Count^>^</RestartOnFailure^>
echo     ^<ExecutionTimeLimit^>PT0S^</ExecutionTimeLimit^>
echo     ^<Priority^>4^</Priority^>
echo   ^</Settings^>
echo   ^<Actions Context="Server"^>^<Exec^>
echo     ^<Command^>"%program:&=&amp;%"^</Command^>
echo     ^<Arguments^>--server --numa-node %1 --host 127.0.80.%1 --port 8080 -m "%model:&=&amp;%" %flags:&=^&amp;%^</Arguments^>
echo   ^</Exec^>^</Actions^>
echo ^</Task^>
exit /b 0
