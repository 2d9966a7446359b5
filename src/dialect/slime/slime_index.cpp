#include "dialect/slime/slime_index.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "tensor/json_handler.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

std::string padded(uint64_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
}

}  // namespace

std::string version_text(uint64_t version) { return padded(version, 6); }

std::string folder_name(uint64_t version) {
  return std::string(kFolderBegin) + version_text(version);
}

std::string index_name(uint64_t version) {
  return folder_name(version) + "/" + std::string(kIndexFileName);
}

std::string part_name(uint64_t index, uint64_t count) {
  return "model-" + padded(index, 5) + "-of-" + padded(count, 5) + std::string(kPartEnd);
}

std::optional<uint64_t> parse_folder_name(std::string_view name) {
  uint64_t version = 0;
  if (!name.starts_with(kFolderBegin) ||
      !parse_number(name.substr(kFolderBegin.size()), &version) || folder_name(version) != name) {
    return std::nullopt;
  }
  return version;
}

namespace {

constexpr size_t kMaxDepth = 64;

constexpr std::string_view kEncodingWord = "delta_encoding";
// Keys that only deltas have. Without kEncodingWord, they indicate a damaged delta.
constexpr std::string_view kDeltaWords[] = {kEncodingWord, "base_version", "compression_format",
                                            "checksum_format"};

bool is_delta_word(std::string_view key) {
  return std::ranges::find(kDeltaWords, key) != std::end(kDeltaWords);
}

using Words = std::map<std::string, std::string, std::less<>>;

// Keeps the strings directly under "metadata"; parse_index() checks or skips everything else.
class MetadataHandler final : public JsonHandler {
 public:
  MetadataHandler() : JsonHandler(kMaxDepth) {}
  Words take() { return std::move(words_); }

 private:
  bool on_object() override {
    if (depth() == 2) inside_ = key_ == "metadata";
    return depth() != 3 || skip(2);
  }
  bool on_object_end() override {
    if (depth() == 1) inside_ = false;
    return true;
  }
  bool on_key(std::string& key) override {
    if (depth() > 2) return true;
    key_ = std::move(key);
    if (depth() == 2 && inside_ && words_.contains(key_)) {
      return fail(corruption("metadata: duplicate key: " + quote(key_)));
    }
    return true;
  }
  bool on_string(std::string& text) override {
    if (depth() == 2 && inside_) words_[key_] = std::move(text);
    return true;
  }
  bool on_array() override { return skip(depth() - 1); }
  bool on_array_end() override { return true; }
  bool on_unsigned(uint64_t) override { return skip(depth()); }
  bool on_other_number(std::string_view) override { return skip(depth()); }
  bool on_literal(std::string_view) override { return skip(depth()); }

  // Other writers, such as Hugging Face, also store numbers here.
  bool skip(size_t level) {
    if (level != 2 || !inside_ || !is_delta_word(key_)) return true;
    return fail(corruption("metadata: " + key_ + ": expected a string, got something else"));
  }

  std::string key_;  // the last one of the index itself or of what stands directly in it
  bool inside_ = false;
  Words words_;
};

Result<std::string_view> word(const Words& words, std::string_view key) {
  const auto it = words.find(key);
  if (it != words.end()) return std::string_view(it->second);
  return corruption("metadata has no " + quote(key));
}

Result<uint64_t> number(const Words& words, std::string_view key) {
  DW_ASSIGN_OR_RETURN(const std::string_view text, word(words, key));
  uint64_t value = 0;
  if (parse_number(text, &value)) return value;
  return corruption("metadata: " + std::string(key) + ": expected a number, got " + quote(text));
}

Status unknown_word(std::string_view key, std::string_view known, std::string_view got) {
  return unsupported("metadata: " + std::string(key) + ": known are " + std::string(known) +
                     ", got " + quote(got));
}

Status check_version(const Words& words, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const uint64_t stated, number(words, "version"));
  if (stated == version) return {};
  return corruption("the folder's name says version " + std::to_string(version) +
                    ", its index says " + std::to_string(stated));
}

Result<ChecksumKind> checksum_kind(const Words& words) {
  DW_ASSIGN_OR_RETURN(const std::string_view name, word(words, "checksum_format"));
  const auto kind = parse_checksum_kind(name);
  if (!kind) return unknown_word("checksum_format", "xxh3-128, blake3 and adler32", name);
  DW_RETURN_IF_ERROR(check_available(*kind));
  return *kind;
}

Result<Delta> parse_delta(const Words& words, uint64_t version) {
  Delta delta;
  DW_RETURN_IF_ERROR(check_version(words, version));
  DW_ASSIGN_OR_RETURN(delta.base, number(words, "base_version"));
  if (delta.base >= version) {
    return corruption("version " + std::to_string(version) + " says that its base is version " +
                      std::to_string(delta.base));
  }
  DW_ASSIGN_OR_RETURN(const std::string_view encoding, word(words, kEncodingWord));
  delta.overwrite = encoding == kOverwrite;
  if (!delta.overwrite && encoding != kXor) {
    return unknown_word(kEncodingWord, "xor and overwrite", encoding);
  }
  DW_ASSIGN_OR_RETURN(const std::string_view compression, word(words, "compression_format"));
  if (compression != kCompression) {
    return unknown_word("compression_format", kCompression, compression);
  }
  DW_ASSIGN_OR_RETURN(delta.checksum, checksum_kind(words));
  return delta;
}

}  // namespace

Result<Index> parse_slime_index(std::string_view json, uint64_t version) {
  Index index;
  DW_ASSIGN_OR_RETURN(index.entries, parse_index(json));
  MetadataHandler handler;
  DW_RETURN_IF_ERROR(parse_json_object(json, handler));
  const Words words = handler.take();
  if (std::ranges::any_of(words, [](const auto& entry) { return is_delta_word(entry.first); })) {
    DW_ASSIGN_OR_RETURN(index.delta, parse_delta(words, version));
  } else if (words.contains("version")) {
    DW_RETURN_IF_ERROR(check_version(words, version));
  }
  return index;
}

}  // namespace deltawire::slime
