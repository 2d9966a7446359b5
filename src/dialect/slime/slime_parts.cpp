#include "dialect/slime/slime_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "dialect/slime/slime_index.h"
#include "tensor/defects.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

using Objects = std::map<std::string, ObjectInfo, std::less<>>;  // by file name

Result<Objects> part_objects(Store& store, const std::string& folder) {
  Objects objects;
  DW_RETURN_IF_ERROR(list_all(store, folder + "/", "", [&](const ObjectInfo& info) {
    const std::string name = info.name.substr(folder.size() + 1);
    if (name.find('/') == name.npos && name.ends_with(kPartEnd)) objects.emplace(name, info);
    return true;
  }));
  return objects;
}

std::string tensor_place(std::string_view name) { return "tensor " + quote(name) + ": "; }

class PartsReader {
 public:
  PartsReader(Store& store, std::string folder, const Index& index)
      : store_(store), folder_(std::move(folder)), index_(index) {}

  Result<Parts> read() {
    DW_ASSIGN_OR_RETURN(const Objects objects, part_objects(store_, folder_));
    DW_ASSIGN_OR_RETURN(const auto names, names_to_open(objects));
    for (const std::string& name : names) DW_RETURN_IF_ERROR(add(objects.at(name), name));
    std::ranges::sort(parts_.tensors, {}, [](const PartTensor& t) { return t.what.name; });
    DW_RETURN_IF_ERROR(check_all_there());
    return std::move(parts_);
  }

 private:
  Status bad(const std::string& file, std::string message) const {
    return corruption(store_.url() + "/" + folder_ + "/" + file + ": " + std::move(message));
  }

  // Those of the index. Of a delta also all others: slime's readers would apply them.
  Result<std::set<std::string>> names_to_open(const Objects& objects) const {
    std::set<std::string> names;
    for (const IndexEntry& entry : index_.entries) {
      if (!names.insert(entry.file).second || objects.contains(entry.file)) continue;
      return bad(entry.file, std::string(defect::kShardMissing) + " (tensor " +
                                 quote(entry.tensor) + "); its name must end in .safetensors");
    }
    if (!index_.delta) return names;
    for (const auto& [name, info] : objects) names.insert(name);
    return names;
  }

  Status add(const ObjectInfo& object, const std::string& name) {
    DW_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::open(store_, object));
    auto view = parse_safetensors(file.bytes(), &header_);
    if (!view.ok()) return std::move(view).status().at(file.where());
    std::unordered_map<std::string_view, std::string_view> digests;
    for (const auto& [key, value] : view->metadata) digests.emplace(key, value);
    for (TensorView& tensor : view->tensors) {
      DW_RETURN_IF_ERROR(check_mapped(tensor.name, name));
      const auto found = digests.find(tensor.name);
      DW_ASSIGN_OR_RETURN(
          ForeignTensor what,
          describe(tensor, name, found == digests.end() ? nullptr : &found->second));
      parts_.tensors.push_back({std::move(what), tensor.bytes, parts_.files.size()});
    }
    parts_.files.push_back(std::move(file));
    return {};
  }

  Status check_mapped(const std::string& tensor, const std::string& file) {
    if (const auto [it, is_new] = seen_.emplace(tensor, file); !is_new) {
      return bad(file, tensor_place(tensor) + std::string(defect::kTensorTwice) + ", this and " +
                           it->second + ": remove the version");
    }
    const auto entry = std::ranges::lower_bound(index_.entries, tensor, {}, &IndexEntry::tensor);
    if (entry == index_.entries.end() || entry->tensor != tensor) {
      return bad(file, tensor_place(tensor) + std::string(defect::kTensorUnmapped));
    }
    // Said at the end: if it is in the other file too, that is what is wrong.
    if (entry->file != file && misplaced_.ok()) {
      misplaced_ =
          bad(file, tensor_place(tensor) + "the index says that it is in " + quote(entry->file));
    }
    return {};
  }

  Result<ForeignTensor> describe(TensorView& tensor, const std::string& file,
                                 const std::string_view* digest) const {
    ForeignTensor what;
    what.payload_bytes = tensor.bytes.size();
    if (!index_.delta) {
      if (digest != nullptr) {
        return bad(file, tensor_place(tensor.name) +
                             "has a digest, as in a delta, but the index has no delta_encoding");
      }
      what.dtype = tensor.dtype;
      what.shape = std::move(tensor.shape);
    } else {
      if (digest == nullptr) return bad(file, tensor_place(tensor.name) + "has no digest");
      auto parsed = parse_checksum(index_.delta->checksum, *digest);
      if (!parsed.ok()) return bad(file, tensor_place(tensor.name) + parsed.status().message());
      what.checksum = std::move(*parsed);
    }
    what.name = std::move(tensor.name);
    return what;
  }

  Status check_all_there() const {
    DW_RETURN_IF_ERROR(misplaced_);
    for (const IndexEntry& entry : index_.entries) {
      if (seen_.contains(entry.tensor)) continue;
      return bad(entry.file, tensor_place(entry.tensor) + std::string(defect::kTensorMissing));
    }
    return {};
  }

  Store& store_;
  const std::string folder_;
  const Index& index_;
  std::string header_;
  std::unordered_map<std::string, std::string> seen_;  // tensor -> file
  Status misplaced_;
  Parts parts_;
};

}  // namespace

Result<Parts> open_parts(Store& store, uint64_t version, const Index& index) {
  return PartsReader(store, folder_name(version), index).read();
}

}  // namespace deltawire::slime
