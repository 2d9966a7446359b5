// slime's source folder as a pull sees it: versions, each opened once, and the way to one of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"
#include "dialect/dialect.h"

namespace deltawire {

struct SlimeVersion {
  std::shared_ptr<ForeignVersion> files;
  std::filesystem::path folder;
  // The same for the same contents, as far as headers tell: two runs have the same numbers, but not
  // the same digests. Of versions without digests: sizes and times of their files.
  std::string identity;

  const ForeignInfo& info() const { return files->info(); }
};

// Where a way begins, and the deltas that follow, in order.
struct SlimeWay {
  uint64_t start = 0;
  std::optional<SlimeVersion> whole;  // the version that it begins with, where that is a whole one
  std::vector<SlimeVersion> deltas;
};

class SlimeSource {
 public:
  // `roots`: version folders and their files lie below one of them, symbolic links followed; empty:
  // anywhere.
  SlimeSource(std::filesystem::path folder, std::vector<std::filesystem::path> roots,
              std::string dialect = "slime");

  const std::filesystem::path& folder() const { return folder_; }
  // NotFound: there is no such version, or it is not complete.
  Result<SlimeVersion> open(uint64_t version);
  // Back from `target` to `floor`, or to the newest whole version above it. BaseMismatch: a delta
  // steps over `floor`.
  Result<SlimeWay> way(uint64_t floor, uint64_t target);
  // InvalidArgument: the folder, or a link in it, leads out of the roots.
  Status check_folder(const std::filesystem::path& folder) const;

 private:
  const std::filesystem::path folder_;
  const std::vector<std::filesystem::path> roots_;
  const std::string dialect_;
  const std::shared_ptr<Store> store_;
  std::map<uint64_t, SlimeVersion> opened_;
};

// "weight_v000003"
std::string slime_version_name(uint64_t version);
// Whether `path`, symbolic links followed as far as it is there, is one of the roots or below one.
bool is_below(const std::filesystem::path& path, const std::vector<std::filesystem::path>& roots);
// Of a checkpoint, a folder or a file: names, sizes and times of its weights.
Result<std::string> identity_of_checkpoint(const std::filesystem::path& path);

}  // namespace deltawire
