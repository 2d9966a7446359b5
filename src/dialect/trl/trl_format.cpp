#include "dialect/trl/trl_format.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "codec/checks.h"
#include "dialect/foreign_file.h"
#include "tensor/text.h"

namespace deltawire::trl {
namespace {

constexpr std::string_view kStep = "step_";
constexpr std::string_view kSuffix = ".safetensors";

Result<std::string> take_text(const Metadata& metadata, std::string_view key) {
  if (const std::string* text = find_metadata(metadata, key)) return *text;
  return corruption("missing metadata " + quote(key));
}

Status wrong_text(std::string_view key, std::string_view expected, std::string_view got) {
  return bad_payload("metadata " + quote(key), expected, quote(got));
}

Result<uint64_t> take_number(const Metadata& metadata, std::string_view key) {
  DW_ASSIGN_OR_RETURN(const std::string text, take_text(metadata, key));
  uint64_t number = 0;
  if (!parse_number(text, &number)) return wrong_text(key, "a number", text);
  return number;
}

Result<bool> take_bool(const Metadata& metadata, std::string_view key) {
  DW_ASSIGN_OR_RETURN(const std::string text, take_text(metadata, key));
  if (text != "True" && text != "False") return wrong_text(key, "True or False", text);
  return text == "True";
}

Status read_changed_params(std::string_view text, Patch* patch) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_array()) return corruption("metadata \"changed_params\": not a JSON list");
  for (const nlohmann::json& name : json) {
    if (!name.is_string()) return corruption("metadata \"changed_params\": not a list of names");
    patch->changed_params.push_back(name.get<std::string>());
  }
  return {};
}

// With spaces after commas and non-ASCII characters escaped, as json.dumps writes it.
std::string names_text(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) {
    if (text.size() > 1) text += ", ";
    text += json_text(nlohmann::json(name), {.ascii = true});
  }
  return text + "]";
}

}  // namespace

std::string file_name(std::string_view folder, uint64_t version) {
  return std::string(folder) + std::string(kStep) + padded_number(version, 6) +
         std::string(kSuffix);
}

std::optional<uint64_t> parse_file_name(std::string_view folder, std::string_view name) {
  if (!name.starts_with(folder)) return {};
  return parse_numbered_name(name.substr(folder.size()), kStep, 6, kSuffix);
}

Result<Patch> parse_patch(const Metadata& metadata) {
  Patch patch;
  DW_ASSIGN_OR_RETURN(const std::string format, take_text(metadata, "format"));
  if (format != kFormat) return wrong_text("format", kFormat, format);
  DW_ASSIGN_OR_RETURN(const std::string version, take_text(metadata, "version"));
  if (version != "1") return unsupported("metadata \"version\": expected 1, got " + quote(version));
  DW_ASSIGN_OR_RETURN(patch.sparse, take_bool(metadata, "sparse"));
  DW_ASSIGN_OR_RETURN(patch.model_version, take_number(metadata, "model_version"));
  DW_ASSIGN_OR_RETURN(patch.num_changed_params, take_number(metadata, "num_changed_params"));
  DW_ASSIGN_OR_RETURN(patch.total_changed_elements,
                      take_number(metadata, "total_changed_elements"));
  DW_ASSIGN_OR_RETURN(patch.total_elements, take_number(metadata, "total_elements"));
  if (patch.total_changed_elements > patch.total_elements) {
    return bad_payload("metadata \"total_changed_elements\"",
                       "at most " + std::to_string(patch.total_elements),
                       patch.total_changed_elements);
  }
  const std::string* changed = find_metadata(metadata, "changed_params");
  if (changed != nullptr) DW_RETURN_IF_ERROR(read_changed_params(*changed, &patch));
  const std::string* encoding = find_metadata(metadata, "encoding");
  if (encoding == nullptr && changed == nullptr) {
    return corruption("missing metadata \"encoding\" or \"changed_params\"");
  }
  patch.encoding = encoding == nullptr ? kV1 : *encoding;
  if (patch.sparse && patch.encoding == kNvcomp) {
    return unsupported(
        "encoding \"nvcomp_cascaded\" needs nvCOMP, which is not built in; instead: "
        "let the trainer write \"gap_delta\"");
  }
  if (encoding != nullptr && *encoding != kRaw && *encoding != kGapDelta && *encoding != kNvcomp) {
    return unsupported("encoding " + quote(*encoding) + " is not known");
  }
  return patch;
}

Metadata patch_metadata(const Patch& patch) {
  const double share =
      double(patch.total_changed_elements) / double(std::max<uint64_t>(patch.total_elements, 1));
  Metadata metadata = {
      {"format", std::string(kFormat)},
      {"version", "1"},
      {"sparse", patch.sparse ? "True" : "False"},
      {"model_version", std::to_string(patch.model_version)},
      {"num_changed_params", std::to_string(patch.num_changed_params)},
      {"total_changed_elements", std::to_string(patch.total_changed_elements)},
      {"total_elements", std::to_string(patch.total_elements)},
      {"sparsity", python_float(1.0 - share)},
  };
  if (patch.v1()) {
    metadata.emplace_back("changed_params", names_text(patch.changed_params));
  } else {
    metadata.emplace_back("encoding", patch.encoding);
  }
  return metadata;
}

std::string python_float(double value) {
  std::array<char, 64> text;
  const bool tiny = value != 0 && value < 1e-4;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 tiny ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(text.data(), end.ptr);
  if (!tiny && out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace deltawire::trl
