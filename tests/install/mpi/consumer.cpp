// A program outside the tree whose ranks give each other a byte: mpirun -n 2 consumer
#include <deltawire/carrier_mpi.h>

#include <array>
#include <cstdio>

int main() {
  auto carrier = deltawire::make_mpi_carrier({.size = 2});
  if (!carrier.ok()) {
    std::puts(carrier.status().to_string().c_str());
    return 1;
  }
  std::array<uint8_t, 1> byte = {uint8_t((*carrier)->rank() == 0 ? 42 : 0)};
  const deltawire::Status status = (*carrier)->broadcast(0, byte, 20);
  std::printf("rank %u of %u has %u\n", (*carrier)->rank(), (*carrier)->size(), unsigned(byte[0]));
  return status.ok() && byte[0] == 42 ? 0 : 1;
}
