// The program for mpirun: the same verbs, with the carrier "mpi". All processes of a job run it.
#include <cstdio>

#include "cli/program.h"
#include "deltawire/carrier_mpi.h"

int main(int argc, char** argv) {
  const deltawire::Status status = deltawire::add_mpi_backend();
  if (!status.ok()) {
    std::fprintf(stderr, "error: %s\n  start all processes by one mpirun: docs/mpi-nccl.md\n",
                 status.to_string().c_str());
    return int(status.code());
  }
  return deltawire::cli::run_program(argc, argv, {});
}
