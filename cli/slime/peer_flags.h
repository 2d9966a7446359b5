// The flags that trainers of slime, miles and vime know, with their defaults and what they refuse:
// one table, in peer_flags.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "bridge/slime/publish.h"
#include "cli/command.h"
#include "deltawire/status.h"

namespace deltawire::cli {

// As given, or their defaults.
struct PeerFlags {
  std::string mode = "full", transport = "nccl";
  std::string disk_dir, local_dir, base;
  std::string delta_encoding = "xor", checksum = "xxh3-128";
  std::string encoding;  // vime's and generation 1's; empty: generation 3's files
  std::string pre_push_hook;
  uint64_t buffer_bytes = uint64_t{512} << 20;
  bool colocate = false;
  bool shard_to_shard = false;
};

void add_peer_flags(Command* verb, PeerFlags* flags);

// What a cell of their matrix, mode x transport, runs; InvalidArgument or Unsupported with their
// reason for those that there are not.
Result<SlimePublishOptions> check_peer_flags(const PeerFlags& flags);

// The flags of receivers, on the serving side.
struct ReceiverFlags {
  uint64_t chunk_bytes = uint64_t{512} << 20;
  unsigned read_workers = 0;  // 0: as --threads says
};
void add_receiver_flags(Command* verb, ReceiverFlags* flags);

}  // namespace deltawire::cli
