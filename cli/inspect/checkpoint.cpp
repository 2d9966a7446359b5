#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/inspect/inspect.h"
#include "cli/table.h"
#include "delta/delta_writer.h"
#include "deltawire/checkpoint.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Tensors = std::vector<const CheckpointTensor*>;

// All tensors of one dtype together.
struct DTypeTotals {
  uint64_t num_tensors = 0, num_elements = 0, size_bytes = 0;
};

uint64_t elements_of(const TensorView& view) { return num_elements(view.shape).value(); }

std::map<DType, DTypeTotals> add_up(const Tensors& tensors) {
  std::map<DType, DTypeTotals> totals;
  for (const CheckpointTensor* tensor : tensors) {
    DTypeTotals& total = totals[tensor->view.dtype];
    ++total.num_tensors;
    total.num_elements += elements_of(tensor->view);
    total.size_bytes += tensor->view.bytes.size();
  }
  return totals;
}

DTypeTotals sum_of(const std::map<DType, DTypeTotals>& totals) {
  DTypeTotals sum;
  for (const auto& [dtype, total] : totals) {
    sum.num_elements += total.num_elements;
    sum.size_bytes += total.size_bytes;
  }
  return sum;
}

Json to_json(DType dtype, const DTypeTotals& total) {
  return {{"dtype", dtype_name(dtype)},
          {"tensors", total.num_tensors},
          {"elements", total.num_elements},
          {"bytes", total.size_bytes}};
}

Json to_json(const Checkpoint& checkpoint, const Tensors& tensors,
             const std::map<DType, DTypeTotals>& totals) {
  Json files = Json::array(), dtypes = files, list = files;
  for (const CheckpointFile& file : checkpoint.files()) {
    Json metadata = Json::object();
    for (const auto& [key, value] : file.metadata) metadata[key] = value;
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes.size()},
                     {"header_bytes", file.header_bytes},
                     {"tensors", file.tensors.size()},
                     {"metadata", metadata}});
  }
  for (const auto& [dtype, total] : totals) dtypes.push_back(to_json(dtype, total));
  const DTypeTotals sum = sum_of(totals);
  for (const CheckpointTensor* tensor : tensors) {
    list.push_back({{"name", tensor->view.name},
                    {"dtype", dtype_name(tensor->view.dtype)},
                    {"shape", tensor->view.shape},
                    {"bytes", tensor->view.bytes.size()},
                    {"file", checkpoint.files()[tensor->file].name}});
  }
  return {{"kind", "checkpoint"},
          {"path", checkpoint.path().string()},
          {"tensors", tensors.size()},
          {"elements", sum.num_elements},
          {"bytes", sum.size_bytes},
          {"dtypes", dtypes},
          {"files", files},
          {"tensor_list", list}};
}

void say_summary(const Context& context, const Checkpoint& checkpoint, const Tensors& tensors,
                 const std::map<DType, DTypeTotals>& totals) {
  const DTypeTotals sum = sum_of(totals);
  context.print("checkpoint  {}", shown_path(checkpoint.path().string()));
  context.print("tensors     {}, {}, {}", human_count(tensors.size()),
                plural(sum.num_elements, "element"), human_bytes(double(sum.size_bytes)));
  for (const auto& [dtype, total] : totals) {
    if (totals.size() == 1) {
      context.print("dtype       {}", dtype_name(dtype));
    } else {
      context.print("  {:<8}  {}, {}, {}", dtype_name(dtype), plural(total.num_tensors, "tensor"),
                    plural(total.num_elements, "element"), human_bytes(double(total.size_bytes)));
    }
  }
  uint64_t file_bytes = 0;
  for (const CheckpointFile& file : checkpoint.files()) file_bytes += file.bytes.size();
  context.print("files       {}{}, {}", checkpoint.files().size(),
                checkpoint.has_index() ? " with an index" : "", human_bytes(double(file_bytes)));
  for (const auto& [key, value] : checkpoint.files().front().metadata) {
    context.print("metadata    {} = {}", shown(key), shown(value));
  }
}

void say_tensors(const Context& context, const Checkpoint& checkpoint, Tensors tensors, bool all) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return a->view.bytes.size() > b->view.bytes.size();
  });
  const size_t listed =
      say_listed(context, tensors.size(), all, "Tensors, largest first", "largest tensors");
  std::vector<Table::Column> columns = {
      {"bytes"}, {"dtype", false}, {"shape", false}, {"tensor", false}};
  const bool with_file = checkpoint.files().size() > 1;
  if (with_file) columns.push_back({"file", false});
  Table table(columns);
  for (size_t i = 0; i < listed; ++i) {
    const TensorView& view = tensors[i]->view;
    std::vector<std::string> row = {human_bytes(double(view.bytes.size())),
                                    std::string(dtype_name(view.dtype)),
                                    shape_to_string(view.shape), shown(view.name)};
    if (with_file) row.push_back(shown(checkpoint.files()[tensors[i]->file].name));
    table.add(std::move(row));
  }
  table.say(context);
}

}  // namespace

Status inspect_checkpoint(const Context& context, const InspectOptions& options) {
  DW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, open_checkpoint(options.path));
  Tensors tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (options.tensor.empty() || options.tensor == tensor.view.name) tensors.push_back(&tensor);
  }
  if (tensors.empty() && !options.tensor.empty()) {
    return not_found(options.path + ": no tensor " + quote(options.tensor));
  }
  const std::map<DType, DTypeTotals> totals = add_up(tensors);
  DW_RETURN_IF_ERROR(check_interrupted());
  DW_RETURN_IF_ERROR(checkpoint.check_unchanged());
  if (context.json) context.emit(to_json(checkpoint, tensors, totals));
  say_summary(context, checkpoint, tensors, totals);
  say_tensors(context, checkpoint, tensors, options.all);
  return {};
}

}  // namespace deltawire::cli
