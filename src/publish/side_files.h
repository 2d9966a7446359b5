// The files beside the weights of a version on its way: configuration, tokenizer and the like.
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

// What a checkpoint's folder holds beside its weights, and the names of what does not travel:
// folders, hidden files, weights in other formats, optimiser states among them.
struct FolderFiles {
  SidePaths files;
  std::vector<std::string> left_out;
};
// A single file has nothing beside it.
Result<FolderFiles> files_beside(const Checkpoint& checkpoint);

// One line for people; empty when nothing was left out.
std::string left_out_note(const std::vector<std::string>& names);

// All of them are read, hashed and checked before anything is put. Destroyed before keep(), it
// takes back what it had put.
class SideFiles {
 public:
  // InvalidArgument, naming file and rule, for what the folder of a checkpoint may not hold.
  static Status check(const SidePaths& paths);
  // The same, and reads them. `paths` none: those of the parent, unchanged. `parent` null: there is
  // none.
  static Result<std::unique_ptr<SideFiles>> gather(const std::optional<SidePaths>& paths,
                                                   const Manifest* parent,
                                                   std::shared_ptr<Store> store);
  ~SideFiles();
  SideFiles(const SideFiles&) = delete;
  SideFiles& operator=(const SideFiles&) = delete;

  bool changed() const noexcept { return changed_; }  // since the parent
  const std::vector<SideFile>& list() const noexcept { return list_; }

  // Puts what the parent does not have, for this version. False of `keep_going` cancels.
  Status put(uint64_t version, const UploadQueue::KeepGoing& keep_going);
  void keep() noexcept { kept_ = true; }  // a manifest may name them from now on
  void abandon();                         // takes back what was put: no manifest names it

  // For the folder of a version stored whole: those whose names an object can have.
  std::vector<FullFile> copies() const;
  // InvalidArgument when a file was changed between two looks at it.
  Status check_copies(const std::vector<PartRef>& parts) const;
  // What was put, by the names of the objects.
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
  std::vector<Content> contents_;  // in step with it
  bool changed_ = false, kept_ = false;
  std::vector<std::string> put_;  // objects
};

}  // namespace deltawire
