#!/usr/bin/env python3
"""Starts ranks by mpirun and looks at how they end: mpi_test.py PROGRAM SCENARIO; 77 where no mpirun is."""
import shutil
import subprocess
import sys

TIMEOUT = 240  # of mpirun; every scenario takes seconds

# Scenario -> numbers of ranks, and what must be said. Exit status 0 unless ENDS says otherwise.
SCENARIOS = {
    "exchanges": ((1, 2, 3, 8), []),
    "broadcasts": ((1, 2, 5, 8), []),
    "groups": ((1, 4), []),
    "wrong_size": ((2,), ["expected 7 ranks, the communicator has 2"]),
    "mismatch": ((2,), ["rank 0 sent 100 bytes where 200 were expected"]),
    "aborts": ((2,), []),
    "late_to_the_group": ((2,), ["not all ranks have come after 1.0 s"]),
    "hung": ((2, 4), ["rank 0, exchange: waiting for rank 1: not done after 6.0 s", "rank 1 ends"]),
    "hung_root": ((3,), ["rank 2, broadcast of rank 0: waiting for rank 0: not done after 1.0 s"]),
    "by_ticket": ((2, 4, 7), []),
    "missing_member": ((3,), ["mpi: rank 1: not there after 4.0 s", "mpi: waiting for the group of rank 0: not done after 4.0 s"]),
    "ReplicasHoldWhatAFolderHolds": ((4,), [f"process {i} holds version 4" for i in (1, 2, 3)]),
    "OneIsKilled": ((4,), ["process 1 holds version 4", "process 3 holds version 4", "process-2", "the trainer ends"]),
    "killed": ((2, 4), ["rank 0, exchange: waiting for rank 1", "rank 0 survives"]),
}
# Ranks that end without MPI_Finalize, and those that are killed, make mpirun's own status.
ANY_STATUS = {"late_to_the_group", "missing_member", "hung", "hung_root", "killed", "aborts", "mismatch", "OneIsKilled"}
# Others live on when a rank dies: mpirun would end the whole job.
RECOVERY = ANY_STATUS


def mpirun(num_ranks: int, program: str, arguments: list[str], recover: bool) -> subprocess.CompletedProcess:
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    command = ["mpirun", "-n", str(num_ranks)]
    if "Open MPI" in version:
        command += ["--allow-run-as-root", "--oversubscribe", *(["--enable-recovery"] if recover else [])]
    elif recover:  # MPICH
        command += ["-disable-auto-cleanup"]
    return subprocess.run([*command, program, *arguments], capture_output=True, text=True, timeout=TIMEOUT)


def main() -> int:
    program, scenario = sys.argv[1:]
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        return 77
    sizes, expected = SCENARIOS[scenario]
    arguments = [f"--gtest_filter=*.{scenario}"] if scenario[0].isupper() else [scenario]
    for num_ranks in sizes:
        ended = mpirun(num_ranks, program, arguments, scenario in RECOVERY)
        text = ended.stdout + ended.stderr
        missing = [line for line in expected if line not in text]
        if missing or "ranks.cpp:" in text or "FAILED" in text or (ended.returncode != 0 and scenario not in ANY_STATUS):
            print(f"{num_ranks} ranks ended with {ended.returncode}, missing {missing}:\n{text}")
            return 1
        print(f"{num_ranks} ranks: as it should be")
    if scenario == "killed":  # without recovery mpirun ends all
        ended = mpirun(4, program, [scenario], False)
        if ended.returncode == 0 or "survives" in ended.stderr:
            print(f"without recovery: ended with {ended.returncode}:\n{ended.stderr}")
            return 1
    return 0


sys.exit(main())
