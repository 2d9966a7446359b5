// The side files of a version in preparation: configuration, tokenizer and the like.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/store.h"
#include "format/manifest.h"
#include "publish/full_version.h"

namespace deltawire {

using SidePaths = std::vector<std::filesystem::path>;

// The files beside the weights in a checkpoint's folder, and the names that are not published:
// folders, hidden files, weights in other formats such as optimiser states.
struct FolderFiles {
  SidePaths files;
  std::vector<std::string> left_out;
};
// Empty for a checkpoint that is a single file.
Result<FolderFiles> files_beside(const Checkpoint& checkpoint);

// One line for users; empty if nothing was left out.
std::string left_out_note(const std::vector<std::string>& names);

// Reads, hashes and checks all files before it puts any. If destroyed before keep(), removes what
// it put.
class SideFiles {
 public:
  // InvalidArgument, naming file and rule, for files that a checkpoint's folder may not contain.
  static Status check(const SidePaths& paths);
  // Checks and reads the files. Without `paths` takes those of the parent unchanged. `parent` may
  // be null.
  static Result<std::unique_ptr<SideFiles>> gather(const std::optional<SidePaths>& paths,
                                                   const Manifest* parent,
                                                   std::shared_ptr<Store> store);
  ~SideFiles();
  SideFiles(const SideFiles&) = delete;
  SideFiles& operator=(const SideFiles&) = delete;

  bool changed() const noexcept { return changed_; }  // compared with the parent
  const std::vector<SideFile>& list() const noexcept { return list_; }

  // Puts the files that the parent does not have. Cancelled when `keep_going` returns false.
  Status put(uint64_t version, const UploadQueue::KeepGoing& keep_going);
  void keep() noexcept { kept_ = true; }  // from now on a manifest may name them
  void abandon();                         // removes what was put; no manifest may name it

  // Copies for the folder of a whole version: the files whose names are valid for objects.
  std::vector<FullFile> copies() const;
  // InvalidArgument if a file changed between two reads.
  Status check_copies(const std::vector<PartRef>& parts) const;
  // The new objects, by their names.
  std::vector<FullFile> new_objects() const;

 private:
  struct Content {
    std::filesystem::path path;  // for messages
    std::shared_ptr<const Body> body;
    bool is_new = false;  // the parent does not have it
  };
  explicit SideFiles(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Status add(const std::filesystem::path& path, const Manifest* parent);
  Status put_one(size_t file, const std::atomic<bool>& stop) const;

  const std::shared_ptr<Store> store_;
  std::vector<SideFile> list_;     // by name
  std::vector<Content> contents_;  // parallel to `list_`
  bool changed_ = false, kept_ = false;
  std::vector<std::string> put_;  // objects
};

}  // namespace deltawire
