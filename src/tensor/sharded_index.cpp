#include "tensor/sharded_index.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "tensor/defects.h"
#include "tensor/json_handler.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kWeightMap = "weight_map";
// Leaves room for what a tool keeps under `metadata`, which is skipped.
constexpr size_t kMaxIndexDepth = 64;

// A name that stays inside the index's folder. The kernel would cut it at a NUL.
bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

class IndexHandler final : public JsonHandler {
 public:
  IndexHandler() : JsonHandler(kMaxIndexDepth) {}
  bool has_weight_map() const { return top_keys_.contains(kWeightMap); }
  std::vector<IndexEntry> take() { return std::move(entries_); }

 private:
  // Depth 1 is the index itself, depth 2 inside the map is the weight map; all else is skipped.
  bool in_map_value() const { return in_map_ && depth() == 2; }
  bool at_map() const { return depth() == 1 && key_ == kWeightMap; }

  // Includes the container that begins.
  bool on_object() override {
    if (depth() == 1) return true;
    if (in_map_) return unexpected("an object");
    in_map_ = depth() == 2 && key_ == kWeightMap;
    return true;
  }
  bool on_array() override {
    if (in_map_ || (depth() == 2 && key_ == kWeightMap)) return unexpected("an array");
    return true;
  }
  bool on_array_end() override { return true; }
  bool on_object_end() override {
    if (depth() == 1) in_map_ = false;
    return true;
  }

  bool on_key(std::string& key) override {
    if (depth() == 1) {
      if (!top_keys_.insert(key).second) {
        return fail(corruption(std::string(defect::kDuplicateKey) + ": " + quote(key)));
      }
      key_ = std::move(key);
    } else if (in_map_) {
      entries_.emplace_back().tensor = std::move(key);
    }
    return true;
  }

  bool on_string(std::string& text) override {
    if (!in_map_value()) return skip("a string");
    if (!is_file_name(text)) {
      return fail(corruption("tensor " + quote(entries_.back().tensor) + ": " + quote(text) + ": " +
                             std::string(defect::kNotAFileName)));
    }
    entries_.back().file = std::move(text);
    return true;
  }
  bool on_unsigned(uint64_t) override { return skip("a number"); }
  bool on_other_number(std::string_view) override { return skip("a number"); }
  bool on_literal(std::string_view text) override { return skip(text); }

  bool skip(std::string_view what) { return in_map_value() || at_map() ? unexpected(what) : true; }
  bool unexpected(std::string_view got) {
    const std::string message = std::string(defect::kWrongType) + ": expected ";
    if (!in_map_) {
      return fail(corruption("weight_map: " + message + "an object, got " + std::string(got)));
    }
    return fail(corruption("tensor " + quote(entries_.back().tensor) + ": " + message +
                           "a file name, got " + std::string(got)));
  }

  std::set<std::string, std::less<>> top_keys_;
  std::string key_;  // the last key of the index itself
  bool in_map_ = false;
  std::vector<IndexEntry> entries_;
};

const IndexEntry* sort_and_find_duplicate(std::vector<IndexEntry>& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const IndexEntry& a, const IndexEntry& b) { return a.tensor < b.tensor; });
  const auto found = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const IndexEntry& a, const IndexEntry& b) { return a.tensor == b.tensor; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

Result<std::vector<IndexEntry>> parse_index(std::string_view json) {
  IndexHandler handler;
  DW_RETURN_IF_ERROR(parse_json_object(json, handler));
  if (!handler.has_weight_map()) return corruption(std::string(defect::kNoWeightMap));
  std::vector<IndexEntry> entries = handler.take();
  if (const IndexEntry* entry = sort_and_find_duplicate(entries)) {
    return corruption(std::string(defect::kDuplicateKey) + ": tensor " + quote(entry->tensor));
  }
  return entries;
}

Result<std::string> serialise_index(const std::vector<IndexEntry>& entries, uint64_t total_bytes) {
  nlohmann::json weight_map = nlohmann::json::object();
  for (const IndexEntry& entry : entries) {
    const std::string place = "tensor " + quote(entry.tensor) + ": ";
    if (!is_utf8(entry.tensor)) return invalid_argument(place + "name is not valid UTF-8");
    if (!is_utf8(entry.file) || !is_file_name(entry.file)) {
      return invalid_argument(place + quote(entry.file) + " is not a file name");
    }
    if (!weight_map.emplace(entry.tensor, entry.file).second) {
      return invalid_argument(place + "name is used twice");
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {std::string(kWeightMap), std::move(weight_map)}};
  std::string text = json_text(index, {.indent = 2, .ascii = true}) + "\n";
  if (text.size() > kMaxIndexBytes) {
    return invalid_argument("the index takes " + std::to_string(text.size()) +
                            " bytes, over the limit of " + std::to_string(kMaxIndexBytes));
  }
  return text;
}

Status write_index(const std::filesystem::path& folder, const std::vector<IndexEntry>& entries,
                   uint64_t total_bytes) {
  const std::filesystem::path path = folder / kIndexFileName;
  DW_ASSIGN_OR_RETURN(auto text, located(serialise_index(entries, total_bytes), path.string()));
  return write_text_file(path, text);
}

}  // namespace deltawire
