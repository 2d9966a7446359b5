# What the scripts of this folder share: servers that run in the background, and never outlive their owner.
# Sourced; a script sets `dir` (everything a server has is in it) and `self`, and defines require, start_all.
#
# Processes are ended only when DIR stands on their command line: a number may have been lent again.

readonly deadline_seconds=60

fail() { echo "$(basename "$self"): $*" >&2; exit 1; }

# Nobody listens there now. Below the range from which the kernel lends ports.
free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000))
    { : </dev/tcp/127.0.0.1/$port; } 2>/dev/null || { echo $port; return; }
  done
}

# wait_for WHAT COMMAND...: until COMMAND succeeds, the deadline passes, or a server has ended.
wait_for() {
  local what=$1
  shift
  until "$@" >/dev/null 2>&1 && servers_alive; do # another's may answer at the port of one that has ended
    servers_alive || { echo "a server ended before: $what" >&2; return 1; }
    ((SECONDS < deadline_seconds)) || { echo "not within $deadline_seconds s: $what" >&2; return 1; }
    sleep 0.05
  done
}

servers_alive() { # those that we started; others may be killed by a test
  local pid
  for pid in "${started[@]}"; do [[ -e /proc/$pid ]] || return 1; done
}

# start NAME COMMAND...: in a session of its own, holding none of our files. Its pid goes to DIR/pids.
started=()
start() {
  local name=$1
  shift
  setsid "$@" </dev/null >"$dir/log/$name.out" 2>&1 &
  started+=($!)
  echo "$! $name" >>"$dir/pids"
  disown
}

up() { # [--port N] [--owner PID]
  local port="" owner=$PPID attempt
  while (($#)); do
    case $1 in
      --port) port=$2 ;;
      --owner) owner=$2 ;;
      *) fail "up: unknown option '$1'" ;;
    esac
    shift 2
  done
  require
  [[ $dir != *[[:space:]]* ]] || fail "'$dir' holds a space, which the servers' configuration cannot"
  [[ ! -e $dir || -e $dir/pids ]] || rmdir "$dir" || fail "$dir is something else's"
  for attempt in 1 2 3; do # a port may be taken between the look and the use
    take_down
    started=()
    mkdir -p "$dir/log"
    : >"$dir/pids"
    if start_all "${port:-$(free_port)}"; then
      watch_owner "$owner"
      return
    fi
    echo "attempt $attempt failed" >&2
    ((SECONDS < deadline_seconds)) || break
  done
  tail -n 20 "$dir"/log/*.out >&2 || true
  take_down
  fail "the servers did not start"
}

# Start time in ticks since boot: tells a process from a later one of the same number.
birth() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

watch_owner() { # PID
  local born
  born=$(birth "$1") || true
  [[ -n $born ]] || fail "there is no process $1 to watch"
  setsid "$self" watch "$dir" "$1" "$born" </dev/null >/dev/null 2>&1 &
  disown
}

watch() { # PID BIRTH
  while [[ -e $dir/pids && $(birth "$1" || true) == "$2" ]]; do sleep 0.5; done
  take_down
}

take_down() {
  [[ -e $dir/pids ]] || return 0
  local pid
  while read -r pid _; do
    if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$dir"; then
      kill -9 "$pid" 2>/dev/null || true
    fi
  done <"$dir/pids" 2>/dev/null
  rm -rf "$dir"
}

# COMMAND with the servers' environment, for as long as it runs.
run() {
  local status=0
  "$self" up "$dir" --owner $$ || exit
  # shellcheck disable=SC1091
  (source "$dir/env" && exec "$@") || status=$?
  take_down
  exit "$status"
}

main() { # VERB DIR ARGUMENTS... | run COMMAND...
  local verb=${1:-}
  case $verb in
    up | down | gateway | watch)
      [[ -n ${2:-} ]] || fail "usage: $verb DIR"
      dir=$(realpath -m "$2") # it stands in the servers' configuration
      shift 2
      ;;
    run)
      shift
      (($#)) || fail "usage: run COMMAND..."
      dir=$(mktemp -d)
      ;;
    *) fail "usage: up|down DIR, run COMMAND..." ;;
  esac
  if [[ $verb == down ]]; then take_down; else "$verb" "$@"; fi
}
