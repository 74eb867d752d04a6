// The part of ONNX Runtime's C interface that this library calls.
//
// ONNX Runtime hands out a table of functions. New versions append to it, so that a slot never changes its meaning.
// `DRAGOMAN_ORT_FUNCTIONS` names the slots in use. `ort/api.hpp` loads and checks them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dragoman::ort {

// Objects that only ONNX Runtime looks into.
struct CustomOpDomain;
struct Env;
struct IoBinding;
struct KernelContext;
struct KernelInfo;
struct MemoryInfo;
struct RunOptions;
struct Session;
struct SessionOptions;
struct ShapeInferContext;
struct Status;  // nullptr: success
struct TensorInfo;
struct TypeInfo;
struct Value;

enum class ElementType : int { kUndefined = 0, kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7 };
enum class ErrorCode : int { kOk = 0, kFail = 1, kInvalidArgument = 2, kInvalidGraph = 10 };
enum class Characteristic : int { kRequired = 0, kOptional = 1, kVariadic = 2 };
enum class AllocatorType : int { kDevice = 0, kArena = 1 };
enum class MemType : int { kDefault = 0 };
enum class LoggingLevel : int { kError = 3, kFatal = 4 };

// The first version of the table that has every slot below.
constexpr uint32_t kApiVersion = 23;

using Function = void (*)();

struct ApiBase {
  const Function* (*get_api)(uint32_t version);  // nullptr: unknown version
  const char* (*get_version_string)();
};

struct CustomOp;

// F(slot, result, name, parameters)
#define DRAGOMAN_ORT_FUNCTIONS(F)                                                                                    \
  F(0, Status*, create_status, (ErrorCode code, const char* message))                                                \
  F(1, ErrorCode, get_error_code, (const Status* status))                                                            \
  F(2, const char*, get_error_message, (const Status* status))                                                       \
  F(3, Status*, create_env, (LoggingLevel level, const char* name, Env** out))                                       \
  F(7, Status*, create_session, (const Env* env, const char* path, const SessionOptions* options, Session** out))    \
  F(10, Status*, create_session_options, (SessionOptions** out))                                                     \
  F(22, Status*, set_session_log_severity_level, (SessionOptions * options, int level))                              \
  F(24, Status*, set_intra_op_num_threads, (SessionOptions * options, int threads))                                  \
  F(25, Status*, set_inter_op_num_threads, (SessionOptions * options, int threads))                                  \
  F(26, Status*, create_custom_op_domain, (const char* domain, CustomOpDomain** out))                                \
  F(27, Status*, custom_op_domain_add, (CustomOpDomain * domain, const CustomOp* op))                                \
  F(28, Status*, add_custom_op_domain, (SessionOptions * options, CustomOpDomain * domain))                          \
  F(49, Status*, create_tensor_with_data,                                                                            \
    (const MemoryInfo* memory, void* data, size_t bytes, const int64_t* shape, size_t rank, ElementType type,        \
     Value** out))                                                                                                   \
  F(51, Status*, get_tensor_mutable_data, (Value * value, void** out))                                               \
  F(55, Status*, cast_type_info_to_tensor_info, (const TypeInfo* type, const TensorInfo** out))                      \
  F(60, Status*, get_tensor_element_type, (const TensorInfo* info, ElementType* out))                                \
  F(61, Status*, get_dimensions_count, (const TensorInfo* info, size_t* out))                                        \
  F(62, Status*, get_dimensions, (const TensorInfo* info, int64_t* out, size_t rank))                                \
  F(65, Status*, get_tensor_type_and_shape, (const Value* value, TensorInfo** out))                                  \
  F(69, Status*, create_cpu_memory_info, (AllocatorType allocator, MemType type, MemoryInfo** out))                  \
  F(85, Status*, kernel_info_get_attribute_float, (const KernelInfo* info, const char* name, float* out))            \
  F(86, Status*, kernel_info_get_attribute_int64, (const KernelInfo* info, const char* name, int64_t* out))          \
  F(87, Status*, kernel_info_get_attribute_string,                                                                   \
    (const KernelInfo* info, const char* name, char* out, size_t* size))                                             \
  F(90, Status*, kernel_context_get_input, (const KernelContext* context, size_t index, const Value** out))          \
  F(91, Status*, kernel_context_get_output,                                                                          \
    (KernelContext * context, size_t index, const int64_t* shape, size_t rank, Value** out))                         \
  F(92, void, release_env, (Env * env))                                                                              \
  F(93, void, release_status, (Status * status))                                                                     \
  F(94, void, release_memory_info, (MemoryInfo * memory))                                                            \
  F(95, void, release_session, (Session * session))                                                                  \
  F(96, void, release_value, (Value * value))                                                                        \
  F(98, void, release_type_info, (TypeInfo * type))                                                                  \
  F(99, void, release_tensor_info, (TensorInfo * info))                                                              \
  F(100, void, release_session_options, (SessionOptions * options))                                                  \
  F(130, Status*, add_session_config_entry, (SessionOptions * options, const char* key, const char* value))          \
  F(133, Status*, run_with_binding, (Session * session, const RunOptions* options, const IoBinding* binding))        \
  F(134, Status*, create_io_binding, (Session * session, IoBinding * *out))                                          \
  F(135, void, release_io_binding, (IoBinding * binding))                                                            \
  F(136, Status*, bind_input, (IoBinding * binding, const char* name, const Value* value))                           \
  F(137, Status*, bind_output, (IoBinding * binding, const char* name, const Value* value))                          \
  F(150, Status*, add_initializer, (SessionOptions * options, const char* name, const Value* value))                 \
  F(163, Status*, kernel_info_get_attribute_array_int64,                                                             \
    (const KernelInfo* info, const char* name, int64_t* out, size_t* size))                                          \
  F(230, Status*, kernel_info_get_input_count, (const KernelInfo* info, size_t* out))                                \
  F(231, Status*, kernel_info_get_output_count, (const KernelInfo* info, size_t* out))                               \
  F(234, Status*, kernel_info_get_input_type_info, (const KernelInfo* info, size_t index, TypeInfo** out))           \
  F(235, Status*, kernel_info_get_output_type_info, (const KernelInfo* info, size_t index, TypeInfo** out))          \
  F(237, Status*, has_session_config_entry, (const SessionOptions* options, const char* key, int* out))              \
  F(238, Status*, get_session_config_entry,                                                                          \
    (const SessionOptions* options, const char* key, char* out, size_t* size))                                       \
  F(249, Status*, kernel_info_get_constant_input,                                                                    \
    (const KernelInfo* info, size_t index, int* is_constant, const Value** out))                                     \
  F(274, Status*, kernel_context_parallel_for,                                                                       \
    (const KernelContext* context, void (*task)(void* user, size_t index), size_t count, size_t batches, void* user)) \
  F(318, Status*, get_tensor_size_in_bytes, (const Value* value, size_t* out))

// An operator: its schema and the functions that ONNX Runtime calls. A nullptr is an absent function.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel)(const CustomOp*, const Function* api, const KernelInfo*);
  const char* (*get_name)(const CustomOp*);
  const char* (*get_execution_provider_type)(const CustomOp*);
  ElementType (*get_input_type)(const CustomOp*, size_t index);
  size_t (*get_input_type_count)(const CustomOp*);
  ElementType (*get_output_type)(const CustomOp*, size_t index);
  size_t (*get_output_type_count)(const CustomOp*);
  void (*kernel_compute)(void* kernel, KernelContext*);
  void (*kernel_destroy)(void* kernel);
  Characteristic (*get_input_characteristic)(const CustomOp*, size_t index);
  Characteristic (*get_output_characteristic)(const CustomOp*, size_t index);
  MemType (*get_input_memory_type)(const CustomOp*, size_t index);
  int (*get_variadic_input_min_arity)(const CustomOp*);
  int (*get_variadic_input_homogeneity)(const CustomOp*);
  int (*get_variadic_output_min_arity)(const CustomOp*);
  int (*get_variadic_output_homogeneity)(const CustomOp*);
  Status* (*create_kernel_v2)(const CustomOp*, const Function* api, const KernelInfo*, void** kernel);
  Status* (*kernel_compute_v2)(void* kernel, KernelContext*);
  Status* (*infer_output_shape)(const CustomOp*, ShapeInferContext*);
  int (*get_start_version)(const CustomOp*);
  int (*get_end_version)(const CustomOp*);
  size_t (*get_may_inplace)(int** inputs, int** outputs);
  void (*release_may_inplace)(int* inputs, int* outputs);
  size_t (*get_alias_map)(int** inputs, int** outputs);
  void (*release_alias_map)(int* inputs, int* outputs);
};

}  // namespace dragoman::ort
