#include "cli/slime/peer_flags.h"

#include <vector>

#include "cli/options.h"

namespace deltawire::cli {
namespace {

struct TextFlag {
  const char* names;  // theirs first; what follows are older names of the same
  std::string PeerFlags::*value;
  const char* description;
  std::vector<std::string> words;  // empty: any
};

// docs/dialects.md shows the same table.
const std::vector<TextFlag>& text_flags() {
  static const std::vector<TextFlag> flags = {
      {"--update-weight-mode",
       &PeerFlags::mode,
       "a whole checkpoint each time, or what changed since the version before (default full)",
       {"full", "delta"}},
      {"--update-weight-transport",
       &PeerFlags::transport,
       "disk: a folder that engines see; nccl (default) runs in the trainer, not on files",
       {"nccl", "disk"}},
      {"--update-weight-disk-dir,--update-weight-delta-dir",
       &PeerFlags::disk_dir,
       "the folder that versions are written to",
       {}},
      {"--update-weight-local-checkpoint-dir",
       &PeerFlags::local_dir,
       "the checkpoint that is kept at the newest version: what the next delta is against",
       {}},
      {"--hf-checkpoint",
       &PeerFlags::base,
       "the checkpoint that version 0 is (default: what the local folder holds)",
       {}},
      {"--update-weight-delta-encoding",
       &PeerFlags::delta_encoding,
       "of deltas (default xor)",
       {"xor", "overwrite"}},
      {"--update-weight-delta-checksum",
       &PeerFlags::checksum,
       "of each tensor after the change (default xxh3-128)",
       {"xxh3-128", "blake3", "adler32"}},
      {"--update-weight-encoding",
       &PeerFlags::encoding,
       "write files of slime's generation 1 and vime instead, in this encoding",
       {"indices", "deltas", "deltas_zstd"}},
      {"--pre-push-hook,--custom-update-weight-post-write-path,--custom-delta-pre-push-path",
       &PeerFlags::pre_push_hook,
       "a shell command to call when a version is written and before engines hear of it; "
       "DELTAWIRE_VERSION and DELTAWIRE_VERSION_DIR say which",
       {}},
  };
  return flags;
}

// Their reason, and the way out.
struct Refusal {
  bool (*when)(const PeerFlags& flags);
  Code code;
  const char* why;
};

constexpr Refusal kRefusals[] = {
    {[](const PeerFlags& f) { return f.shard_to_shard; }, Code::kUnsupported,
     "--use-p2p-weight-update: a checkpoint in files has no ranks; shard to shard runs inside the "
     "trainer's and the engine's processes (deltawire.shards, docs/carriers.md), and deltawire "
     "plan-shards shows who would send what; leave it out to publish the checkpoint"},
    {[](const PeerFlags& f) { return f.mode == "delta" && f.colocate; }, Code::kInvalidArgument,
     "--update-weight-mode delta with --colocate: colocated engines get weights through CUDA IPC, "
     "where only a handle crosses processes, so a delta is nothing but work; say "
     "--update-weight-mode full"},
    {[](const PeerFlags& f) { return f.mode == "delta" && f.transport != "disk"; },
     Code::kInvalidArgument,
     "--update-weight-mode delta goes over disk alone: say --update-weight-transport disk"},
    {[](const PeerFlags& f) { return f.transport == "nccl"; }, Code::kUnsupported,
     "--update-weight-transport nccl: a checkpoint in files has no group of processes; versions "
     "over "
     "NCCL, gloo or TCP go from the trainer's process (deltawire.ship, docs/carriers.md); say "
     "--update-weight-transport disk"},
    {[](const PeerFlags& f) { return f.disk_dir.empty(); }, Code::kInvalidArgument,
     "--update-weight-transport disk needs a folder that the trainer and the engines share: say "
     "--update-weight-disk-dir DIR"},
    {[](const PeerFlags& f) { return f.mode == "delta" && f.local_dir.empty(); },
     Code::kInvalidArgument,
     "--update-weight-mode delta needs a local folder that holds the version before: say "
     "--update-weight-local-checkpoint-dir DIR"},
    {[](const PeerFlags& f) { return f.mode == "full" && !f.encoding.empty(); },
     Code::kInvalidArgument,
     "--update-weight-encoding: generation 1 has no whole versions; say --update-weight-mode "
     "delta, "
     "or leave it out"},
};

}  // namespace

void add_peer_flags(Command* verb, PeerFlags* flags) {
  for (const TextFlag& flag : text_flags()) {
    std::string* const value = &(flags->*flag.value);
    if (flag.words.empty()) {
      verb->add_option(flag.names, *value, flag.description)
          ->type_name(flag.value == &PeerFlags::pre_push_hook ? "COMMAND" : "DIR");
    } else {
      add_choice(verb, flag.names, value, flag.description, flag.words);
    }
  }
  add_bytes(verb, "--update-weight-buffer-size", &flags->buffer_bytes,
            "tensors of one file, at most, unless one is larger (default 512MiB)");
  verb->add_flag("--colocate", flags->colocate, "trainer and engines share GPUs");
  verb->add_flag("--use-p2p-weight-update", flags->shard_to_shard,
                 "from trainer ranks to engine ranks, shard to shard: not from files");
}

Result<SlimePublishOptions> check_peer_flags(const PeerFlags& flags) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.when(flags)) return Status(refusal.code, refusal.why);
  }
  SlimePublishOptions options;
  options.source = flags.disk_dir;
  options.local = flags.local_dir;
  options.base = flags.base;
  options.full = flags.mode == "full";
  options.dialect = flags.encoding.empty() ? "slime" : "slime-gen1";
  options.write.buffer_bytes = flags.buffer_bytes;
  if (!flags.encoding.empty()) {
    options.write.encoding = flags.encoding;
  } else if (!options.full) {
    options.write.encoding = flags.delta_encoding;
    options.write.checksum = flags.checksum;
  }
  return options;
}

void add_receiver_flags(Command* verb, ReceiverFlags* flags) {
  add_bytes(verb,
            "--update-weight-delta-chunk-bytes,--sglang-update-weight-delta-chunk-bytes,"
            "--vllm-update-weight-delta-chunk-bytes",
            &flags->chunk_bytes,
            "tensors that are decoded at one time, at most, unless one is larger (default 512MiB)");
  add_whole_number(verb,
                   "--update-weight-delta-read-workers,--sglang-update-weight-delta-read-workers,"
                   "--vllm-update-weight-delta-read-workers",
                   &flags->read_workers, "threads that read and decode (default: --threads)", 1,
                   1024);
}

}  // namespace deltawire::cli
