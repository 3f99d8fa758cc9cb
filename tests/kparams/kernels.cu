// SPDX-License-Identifier: Apache-2.0
// Kernels of every kind of parameter that kparams must lay out. They are never run.
#include <cstdint>
#include <cuda_fp16.h>

struct Simple { int a; double b; };
struct WithPtr { int n; float *a; double *b; };
struct PtrArray { float *p[8]; int n; };
struct __attribute__((packed)) Packed { char c; void *p; int n; };
struct alignas(16) Al16 { int v[4]; };
struct alignas(128) Al128 { char bytes[128]; };
struct Empty {};
struct Nested { Simple s; WithPtr *w; Empty e; float *q; };
union U { float *p; uint64_t n; };
template <size_t N> struct Bytes { char b[N]; };
template <typename T> struct Alias { using type = T *; };
struct TensorLists { void *addresses[4][110]; int64_t sizes[110]; unsigned char to[320]; int n; };
enum class Color : int { red };

extern "C" __global__ void k_empty() {}
extern "C" __global__ void k_scalars(char, short, int, long, float, double, bool) {}
extern "C" __global__ void k_pointers(float *a, const float *b, void **c, const char *d, uint64_t n)
{
	a[n] = b[n] + (c != nullptr) + *d;
}

__global__ void scalars(char, short, int, long, float, double, bool, unsigned long long) {}
__global__ void pointers(float *a, const float *b, void **, const char *, uint64_t) { *a = *b; }
__global__ void structs(WithPtr w, int, Simple) { *w.a = w.n; }
__global__ void pointer_array(PtrArray p, float x) { *p.p[p.n] = x; }
__global__ void packed(Packed, Al16) {}
__global__ void aligned(int, Al128, float *) {}
__global__ void aligned_first(Al128, int) {}
__global__ void references(int &, int (*)[4], int (&)[4]) {}
__global__ void functions(U, Empty, Nested, int (*)(float), void (**)(int)) {}
__global__ void halves(cudaTextureObject_t, __half, __half2, float4, Color, void *) {}
__global__ void const_grid(const __grid_constant__ WithPtr w, int *p) { *p = w.n; }
__global__ void multi_tensor(TensorLists, float) {}
__global__ void limit_v1(Bytes<4344>, float *) {}
__global__ void limit_v2(Bytes<4352>, float *) {}
__global__ void largest(Bytes<32764>) {}
__global__ void many_pointers(Bytes<8> a, void *const __restrict__ b, volatile int *, nullptr_t) {}
__global__ void __launch_bounds__(128, 2) bounded(int *p, int n) { p[n] = 1; }
static __global__ void internal(int *p, int n) { p[n] = 2; }
namespace {
__global__ void anonymous(int *p) { *p = 3; }
}

template <typename T, int N> __global__ void templated(T *, T, Alias<T> *, typename Alias<T>::type)
{
}
template <typename F> __global__ void functor(F f, int n) { f(n); }
template <typename... T> __global__ void variadic(int, T...) {}
template <typename... T> __global__ void variadic_pointers(T *..., const WithPtr *, T &...) {}
template <template <typename> class C, typename T> __global__ void nested_template(C<T>, C<T *> *, T)
{
}

void launch_all(float *p, int n)
{
	functor<<<1, 1>>>([=] __device__(int i) { p[i] = n; }, n);
	templated<float, 3><<<1, 1>>>(p, 1.f, nullptr, p);
	templated<double *, 3><<<1, 1>>>(nullptr, nullptr, nullptr, nullptr);
	variadic<<<1, 1>>>(1, p, 2.0, (const int *)nullptr, WithPtr{}, (int (*)(int))nullptr);
	variadic<<<1, 1>>>(1);
	variadic_pointers<float, double><<<1, 1>>>(p, nullptr, nullptr, *p, *(double *)p);
	nested_template<Alias, int><<<1, 1>>>(Alias<int>{}, (Alias<int *> *)nullptr, 1);
	internal<<<1, 1>>>((int *)p, n);
	anonymous<<<1, 1>>>((int *)p);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(2, 1, 1)
#else
#define CLUSTER
#endif
extern "C" __global__ void CLUSTER k_cluster(int *p, int n) { p[n] = 1; }

int main() { return 0; }
