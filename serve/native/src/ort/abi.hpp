// The part of ONNX Runtime's C interface that this library calls.
//
// ONNX Runtime hands out a table of functions. New versions append to it, so that a slot never changes its meaning.
// `DRAGOMAN_ORT_FUNCTIONS` names the slots in use. `ort/api.hpp` loads them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dragoman::ort {

// Objects that only ONNX Runtime looks into.
struct Allocator;
struct CudaOptions;
struct CustomOpDomain;
struct Env;
struct IoBinding;
struct KernelContext;
struct KernelInfo;
struct MemoryInfo;
struct RunOptions;
struct Session;
struct SessionOptions;
struct Status;  // nullptr: success
struct TensorInfo;
struct TypeInfo;
struct Value;

enum class ElementType : int {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kFloat16 = 10,
};
enum class ErrorCode : int { kFail = 1, kInvalidArgument = 2 };
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

// F(slot, result, name, types of the parameters); onnxruntime_c_api.h documents them.
#define DRAGOMAN_ORT_FUNCTIONS(F)                                                                             \
  F(0, Status*, create_status, (ErrorCode, const char*))                                                      \
  F(2, const char*, get_error_message, (const Status*))                                                       \
  F(3, Status*, create_env, (LoggingLevel, const char*, Env**))                                               \
  F(7, Status*, create_session, (const Env*, const char*, const SessionOptions*, Session**))                  \
  F(10, Status*, create_session_options, (SessionOptions**))                                                  \
  F(22, Status*, set_session_log_severity_level, (SessionOptions*, int))                                      \
  F(24, Status*, set_intra_op_num_threads, (SessionOptions*, int))                                            \
  F(25, Status*, set_inter_op_num_threads, (SessionOptions*, int))                                            \
  F(26, Status*, create_custom_op_domain, (const char*, CustomOpDomain**))                                    \
  F(27, Status*, custom_op_domain_add, (CustomOpDomain*, const CustomOp*))                                    \
  F(28, Status*, add_custom_op_domain, (SessionOptions*, CustomOpDomain*))                                    \
  F(30, Status*, get_input_count, (const Session*, size_t*))                                                  \
  F(36, Status*, get_input_name, (const Session*, size_t, Allocator*, char**))                                \
  F(39, Status*, create_run_options, (RunOptions**))                                                          \
  F(49, Status*, create_tensor_with_data,                                                                     \
    (const MemoryInfo*, void*, size_t, const int64_t*, size_t, ElementType, Value**))                         \
  F(51, Status*, get_tensor_mutable_data, (Value*, void**))                                                   \
  F(55, Status*, cast_type_info_to_tensor_info, (const TypeInfo*, const TensorInfo**))                        \
  F(60, Status*, get_tensor_element_type, (const TensorInfo*, ElementType*))                                  \
  F(61, Status*, get_dimensions_count, (const TensorInfo*, size_t*))                                          \
  F(62, Status*, get_dimensions, (const TensorInfo*, int64_t*, size_t))                                       \
  F(65, Status*, get_tensor_type_and_shape, (const Value*, TensorInfo**))                                     \
  F(68, Status*, create_memory_info, (const char*, AllocatorType, int, MemType, MemoryInfo**))                \
  F(69, Status*, create_cpu_memory_info, (AllocatorType, MemType, MemoryInfo**))                              \
  F(76, Status*, allocator_free, (Allocator*, void*))                                                         \
  F(78, Status*, get_default_allocator, (Allocator**))                                                        \
  F(85, Status*, kernel_info_get_attribute_float, (const KernelInfo*, const char*, float*))                   \
  F(86, Status*, kernel_info_get_attribute_int64, (const KernelInfo*, const char*, int64_t*))                 \
  F(87, Status*, kernel_info_get_attribute_string, (const KernelInfo*, const char*, char*, size_t*))          \
  F(90, Status*, kernel_context_get_input, (const KernelContext*, size_t, const Value**))                     \
  F(91, Status*, kernel_context_get_output, (KernelContext*, size_t, const int64_t*, size_t, Value**))        \
  F(93, void, release_status, (Status*))                                                                      \
  F(94, void, release_memory_info, (MemoryInfo*))                                                             \
  F(95, void, release_session, (Session*))                                                                    \
  F(96, void, release_value, (Value*))                                                                        \
  F(97, void, release_run_options, (RunOptions*))                                                             \
  F(98, void, release_type_info, (TypeInfo*))                                                                 \
  F(99, void, release_tensor_info, (TensorInfo*))                                                             \
  F(100, void, release_session_options, (SessionOptions*))                                                    \
  F(130, Status*, add_session_config_entry, (SessionOptions*, const char*, const char*))                      \
  F(133, Status*, run_with_binding, (Session*, const RunOptions*, const IoBinding*))                          \
  F(134, Status*, create_io_binding, (Session*, IoBinding**))                                                 \
  F(135, void, release_io_binding, (IoBinding*))                                                              \
  F(136, Status*, bind_input, (IoBinding*, const char*, const Value*))                                        \
  F(137, Status*, bind_output, (IoBinding*, const char*, const Value*))                                       \
  F(150, Status*, add_initializer, (SessionOptions*, const char*, const Value*))                              \
  F(163, Status*, kernel_info_get_attribute_array_int64, (const KernelInfo*, const char*, int64_t*, size_t*)) \
  F(165, Status*, add_run_config_entry, (RunOptions*, const char*, const char*))                              \
  F(204, Status*, append_cuda, (SessionOptions*, const CudaOptions*))                                         \
  F(205, Status*, create_cuda_options, (CudaOptions**))                                                       \
  F(206, Status*, update_cuda_options, (CudaOptions*, const char* const*, const char* const*, size_t))        \
  F(208, void, release_cuda_options, (CudaOptions*))                                                          \
  F(230, Status*, kernel_info_get_input_count, (const KernelInfo*, size_t*))                                  \
  F(231, Status*, kernel_info_get_output_count, (const KernelInfo*, size_t*))                                 \
  F(232, Status*, kernel_info_get_input_name, (const KernelInfo*, size_t, char*, size_t*))                    \
  F(233, Status*, kernel_info_get_output_name, (const KernelInfo*, size_t, char*, size_t*))                   \
  F(234, Status*, kernel_info_get_input_type_info, (const KernelInfo*, size_t, TypeInfo**))                   \
  F(237, Status*, has_session_config_entry, (const SessionOptions*, const char*, int*))                       \
  F(238, Status*, get_session_config_entry, (const SessionOptions*, const char*, char*, size_t*))             \
  F(249, Status*, kernel_info_get_constant_input, (const KernelInfo*, size_t, int*, const Value**))           \
  F(263, Status*, update_cuda_option_value, (CudaOptions*, const char*, void*))                               \
  F(274, Status*, kernel_context_parallel_for,                                                                \
    (const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*))                                   \
  F(318, Status*, get_tensor_size_in_bytes, (const Value*, size_t*))

// The version of ONNX Runtime that has the operators below. Later ones append functions, which are optional.
constexpr uint32_t kOperatorVersion = 16;

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
};

}  // namespace dragoman::ort
