// A store in a local or shared folder: an object is a file of the same name.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "deltawire/store.h"
#include "store/temporary_file.h"

namespace deltawire {

// Writes go to a temporary name in the object's folder, are synced, then linked (put_if_absent) or
// renamed (put) to the object's name, and the folder is synced: both are atomic on NFS too.
// Temporary names begin with a dot; no listing shows them. Folders come and go with what they hold.
class DirectoryStore final : public Store {
 public:
  explicit DirectoryStore(const std::filesystem::path& root);

  std::string url() const override { return root_.string(); }
  std::string local_folder() const override { return root_.string(); }
  Result<Capabilities> capabilities() override { return Capabilities{}; }
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;
  Result<int64_t> clock() override;

 private:
  class File;
  Status check_root() const;
  Result<struct stat> check(const File& file) const;
  using TakeName = Status (TemporaryFile::*)();
  Status write(std::string_view name, const Body& body, TakeName take_name);
  Status write_file(const std::filesystem::path& path, const Body& body, TakeName take_name);
  Status create(TemporaryFile* file, const std::filesystem::path& folder);
  Status make_folders(const std::filesystem::path& folder);
  std::filesystem::path remove_empty(std::filesystem::path folder);
  void forget_folders();

  const std::filesystem::path root_;
  std::mutex mutex_;
  std::set<std::string> synced_folders_;  // whose directory entries are synced
};

}  // namespace deltawire
