// What a local folder holds, as far as it can be known. A number in state.json is a claim, not a
// proof: an earlier run leaves the same numbers behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bridge/slime/local.h"
#include "bridge/slime/source.h"
#include "bridge/slime/steps.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"

namespace deltawire {

struct SlimeHeld {
  std::optional<Checkpoint> checkpoint;
  std::optional<uint64_t> version;  // none: the folder is new
  // Why the checkpoint cannot be used: it is damaged, of another run, or was half-way when somebody
  // died. Ok: deltas may be put on top of it.
  Status distrust;
  // It is what the source has as this version, or what the base is. Without it deltas may still be
  // put on top: they prove what they touch.
  bool proven = false;
  std::string identity;  // of the version, for our record
};

// How far back the source can prove something:
//   our record, files as we left them, the source still has the same version   proven
//   no record of ours, the source has that delta: its digests, tensor by tensor   proven, or not
//   our record, but somebody wrote to the files                                not usable
//   the source has another delta under this number                             of another run
//   the source does not have it any more                              not proven, usable
//   the same, and our record names another source                              not usable
//   state.json names another version, files as we left them                    not usable
// `base` is the checkpoint that version 0 is; empty: whatever is there.
Result<SlimeHeld> look_at_slime_local(const SlimeLocal& local, SlimeSource* source,
                                      const std::filesystem::path& base, const SlimeWork& work);

}  // namespace deltawire
