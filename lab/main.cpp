// The program with every verb: what `make build` and the Debian package bring.
#include "cli/verbs.h"
#include "lab/verbs.h"

int main(int argc, char** argv) {
  return deltawire::cli::run_program(argc, argv, deltawire::cli::lab_verbs());
}
