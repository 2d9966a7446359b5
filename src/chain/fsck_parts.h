// The second half of a check: the objects that records name, and whether they fit the records.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/fsck.h"
#include "format/part_check.h"

namespace deltawire {

// The findings of a check so far.
struct FsckFindings {
  Store& store;
  FsckReport report = {};

  void problem(const Status& status) { report.problems.push_back(status.to_string()); }
  void warn(std::string what) { report.warnings.push_back(std::move(what)); }
  std::string place(std::string_view object) const {
    return store.url() + "/" + std::string(object);
  }
  // Adds a defect of an object.
  void bad(std::string_view object, std::string_view what) {
    problem(corruption(place(object) + ": " + std::string(what)));
  }
  // Reports damage and lets the check continue; returns other failures, such as an unavailable
  // store. Malformed records count as damage.
  Status note(Status status) {
    if (status.ok()) return {};
    if (!is_damage(status) && status.code() != Code::kInvalidArgument) return status;
    problem(status);
    return {};
  }
};

// One thread; objects are read by several.
class FsckParts {
 public:
  // `objects`: all that the store holds, by name.
  FsckParts(const ObjectCheck& options, const std::map<std::string, ObjectInfo>& objects,
            FsckFindings* findings)
      : options_(options), objects_(objects), out_(*findings), pool_(options.threads) {}

  // All parts of a record, several at once. `target.schema` is null when its records are damaged:
  // then sizes and checksums are all that can be checked.
  Status check_parts(const std::string& record, bool whole, const std::vector<PartRef>& parts,
                     DescribedState base, DescribedState target);
  // The files beside the weights. A file's object is put by the version that first has it; the next
  // ones name it again: so versions come in order.
  Status check_files(const std::string& record, const Manifest& manifest);
  // A version stored whole is a folder that engines load as it is: the same files lie there, as far
  // as objects can have their names.
  void check_copies(const std::string& record, const std::vector<SideFile>& files,
                    const std::vector<PartRef>& parts);

  // Whether a record names this object, a part or a file.
  bool is_named(const std::string& object) const { return named_.contains(object); }

 private:
  // A file of a checkpoint as engines know it.
  struct PlainFile {
    std::string_view header;
    uint64_t size_bytes = 0;
  };
  // What is in a part of a delta; or, when that is null, in a file of a whole version.
  using CheckContents = std::function<Status(const DeltaPart*, const PlainFile&)>;
  // Whether all of them are sound; damage is reported.
  Result<bool> check_all(const std::vector<PartRef>& parts, bool whole, bool described,
                         const CheckContents& check);
  Status check_part(const PartRef& part, bool whole, bool described, const CheckContents& check);
  static Status check_packed(const PartRef& part, const std::string& front, bool described,
                             const CheckContents& check);
  void check_sizes(const std::string& record, const std::vector<PartRef>& parts);

  const ObjectCheck& options_;
  const std::map<std::string, ObjectInfo>& objects_;
  FsckFindings& out_;
  ThreadPool pool_;
  std::set<std::string> named_;
  std::optional<uint64_t> last_files_of_;
  std::set<std::string> last_files_;  // objects of that version's files
  std::mutex progress_mutex_;
  uint64_t done_ = 0;
};

}  // namespace deltawire
