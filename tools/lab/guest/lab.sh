# What the generated script is made of. An event is one line on descriptor 3:
#   {"scenario":"S","run":"R","kind":"K","data":"D"}     D: text, gzipped, in base64
# Kinds: booted, ready (seconds it took), answer, numa_maps, pages, threads, report, errors (the end of stderr),
# exit (its code, or "running" for a program that had to be ended), done.
scenario= run=

tell() { # KIND: its data comes from stdin
    printf '{"scenario":"%s","run":"%s","kind":"%s","data":"%s"}\n' "$scenario" "$run" "$1" "$(gzip -c | base64 -w0)" >&3
}

seconds() { cut -d. -f1 /proc/uptime; }

begin() { # SCENARIO
    scenario=$1 run=
    drop
}

end() {
    chown 0 /disk/*
    huge always
    echo | tell done
}

huge() { # always or never: huge pages for memory of which nothing is said
    echo "$1" >/sys/kernel/mm/transparent_hugepage/enabled
}

drop() { # the page cache
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

cache() { # FILE NODE: read it so that its cached pages lie on NODE
    evict "$1"
    numactl --membind="$2" cat "$1" >/dev/null
}

own() { # FILE: give it to the user that programs run as
    chown 65534 "$1"
}

start() { # RUN PORT SECONDS COMMAND...: returns when it serves, has ended, or is late
    run=$1
    begun=$(seconds)
    echo "$2" >"/run/$run.port"
    limit=$3
    shift 3
    "$@" </dev/null >"/run/$run.out" 2>"/run/$run.err" &
    echo $! >"/run/$run.pid"
    until get health >/dev/null; do
        alive || return
        [ $(($(seconds) - begun)) -lt "$limit" ] || return
        sleep 0.2
    done
    echo $(($(seconds) - begun)) | tell ready
}

alive() {
    grep -q '^State:.[^ZX]' "/proc/$(cat "/run/$run.pid")/status" 2>/dev/null
}

get() { # PATH [WGET OPTION...]
    path=$1
    shift
    timeout 120 wget -q -O - "$@" "http://127.0.0.1:$(cat "/run/$run.port")/$path" 2>/dev/null
}

look() { # RUN FILE: let it generate, then say where the pages of the process are; FILE is the model
    run=$1
    get completion --header 'Content-Type: application/json' \
        --post-data '{"prompt":[2],"n_predict":1}' | tell answer
    alive || return
    pid=$(cat "/run/$run.pid")
    tell numa_maps <"/proc/$pid/numa_maps"
    pages "$pid" "$2" | tell pages
    grep -h -E '^(Name|Cpus_allowed_list):' /proc/"$pid"/task/*/status | tell threads
}

stop() { # RUN
    run=$1
    pid=$(cat "/run/$run.pid")
    if alive; then
        kill -KILL "$pid"
        wait "$pid"
        code=running
    else
        wait "$pid"
        code=$?
    fi
    [ -e "/tmp/$run.json" ] && tell report <"/tmp/$run.json"
    tail -c 6000 "/run/$run.err" | tell errors
    echo "$code" | tell exit
    rm -f /run/"$run".* "/tmp/$run.json"
}
