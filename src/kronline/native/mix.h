// K Kronecker products to r of them, unbiased, with the least variance: what traces/mixing.py says,
// step by step, with its names, in double precision.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

namespace kronline {

// Matrices here are small, square or K x r, row by row.
class Mixer {
 public:
  std::vector<double> left, right;  // (K, r)
  double variance = 0;

  Mixer(int64_t K, int64_t r) : left(K * r), right(K * r), K(K), r(r) {}

  // From the Gram matrices of both factors, and K - 1 signs.
  template <typename T>
  void mix(const std::vector<double>& all_u, const std::vector<double>& all_b, const T* signs) {
    // the largest first: fewer rotations
    std::vector<int64_t> order(K);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return all_u[i * K + i] * all_b[i * K + i] > all_u[j * K + j] * all_b[j * K + j];
    });
    std::vector<double> Gu(K * K), Gb(K * K);
    for (int64_t i = 0; i < K; ++i)
      for (int64_t j = 0; j < K; ++j) {
        Gu[i * K + j] = all_u[order[i] * K + order[j]];
        Gb[i * K + j] = all_b[order[i] * K + order[j]];
      }
    const double eps = std::numeric_limits<T>::epsilon(), tiny = std::pow(eps, 0.75);
    // u s (x) b/s is the same product: each pair is balanced, dead ones are dropped
    std::vector<double> s(K), back(K);
    int64_t alive = 0;
    for (int64_t i = 0; i < K; ++i) {
      const double nu = Gu[i * K + i], nb = Gb[i * K + i];
      if (nu > 0 && nb > 0) {
        s[i] = std::pow(nb / nu, 0.25);
        back[i] = 1 / s[i];
        ++alive;
      }
    }
    for (int64_t i = 0; i < K; ++i)
      for (int64_t j = 0; j < K; ++j) {
        Gu[i * K + j] *= s[i] * s[j];
        Gb[i * K + j] *= back[i] * back[j];
      }
    // columns count as orthogonal at an angle of 0.01 from it: a ten-thousandth of the variance
    basis(Gu.data(), Gb.data(), tiny, std::is_same_v<T, float> ? 1e-4 : eps);
    shares(eps);
    if (alive <= r) variance = 0;  // then all are kept
    rows();
    for (int64_t j = 1; j < K; ++j)
      for (int64_t i = 0; i < r; ++i) Z[j * r + i] *= signs[j - 1];
    // left = X Z s, right = Y Z back, with X = R^-T V root, Y = R V / root
    std::vector<double> x(K), y(K);
    for (int64_t i = 0; i < r; ++i) {
      std::fill(x.begin(), x.end(), 0), std::fill(y.begin(), y.end(), 0);
      for (int64_t j = 0; j < K; ++j)
        for (int64_t a = 0; a < K; ++a) {
          x[a] += VT[j * K + a] * root[j] * Z[j * r + i];
          y[a] += VT[j * K + a] / root[j] * Z[j * r + i];
        }
      for (int64_t a = K - 1; a >= 0; --a) {
        for (int64_t b = a + 1; b < K; ++b) x[a] -= Ru[b * K + a] * x[b];
        x[a] /= Ru[a * K + a];
      }
      for (int64_t a = 0; a < K; ++a) {
        double sum = 0;
        for (int64_t b = 0; b <= a; ++b) sum += Ru[a * K + b] * y[b];
        left[order[a] * r + i] = x[a] * s[a];
        right[order[a] * r + i] = sum * back[a];
      }
    }
  }

 private:
  int64_t K, r;
  std::vector<double> Ru, VT, d, root, p, Z;

  // G + jitter = R R^T
  std::vector<double> cholesky(const double* G, double tiny) const {
    double scale = 0;
    for (int64_t i = 0; i < K; ++i) scale += G[i * K + i] / K;
    const double jitter = tiny * scale + (scale == 0);
    std::vector<double> R(K * K);
    for (int64_t i = 0; i < K; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        double x = G[i * K + j] + (i == j ? jitter : 0);
        for (int64_t a = 0; a < j; ++a) x -= R[i * K + a] * R[j * K + a];
        // rounding may leave less than nothing: any positive number will do
        R[i * K + j] = i == j ? std::sqrt(std::max(x, jitter)) : x / R[j * K + j];
      }
    return R;
  }

  // Gu = Ru Ru^T, Gb = Rb Rb^T: the singular values d and right singular vectors of Rb^T Ru,
  // largest first, by rotations of its columns (one-sided Jacobi).
  void basis(const double* Gu, const double* Gb, double tiny, double small) {
    Ru = cholesky(Gu, tiny);
    const std::vector<double> Rb = cholesky(Gb, tiny);
    std::vector<double> M(K * K), V(K * K), norms(K);  // the columns of Rb^T Ru, and V's, as rows
    for (int64_t j = 0; j < K; ++j) {
      V[j * K + j] = 1;
      for (int64_t a = j; a < K; ++a)
        for (int64_t i = 0; i <= a; ++i) M[j * K + i] += Ru[a * K + j] * Rb[a * K + i];
    }
    for (int sweep = 0; sweep < 30; ++sweep) {
      for (int64_t j = 0; j < K; ++j) norms[j] = dot(&M[j * K], &M[j * K]);
      const double nothing = small * small * *std::max_element(norms.begin(), norms.end());
      bool turned = false;
      for (int64_t i = 0; i < K; ++i)
        for (int64_t j = i + 1; j < K; ++j) {
          if (norms[i] + norms[j] <= nothing) continue;
          const double x = dot(&M[i * K], &M[j * K]);
          if (!(x * x > small * norms[i] * norms[j])) continue;
          turned = true;
          const double zeta = (norms[j] - norms[i]) / (2 * x);
          const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
          const double c = 1 / std::sqrt(1 + t * t), s = c * t;
          turn(&M[i * K], &M[j * K], c, s);
          turn(&V[i * K], &V[j * K], c, s);
          norms[i] -= t * x;
          norms[j] += t * x;
        }
      if (!turned) break;
    }
    std::vector<int64_t> order(K);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t j = 0; j < K; ++j) norms[j] = dot(&M[j * K], &M[j * K]);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return norms[a] > norms[b]; });
    d.resize(K), root.resize(K), VT.resize(K * K);
    for (int64_t j = 0; j < K; ++j) {
      d[j] = std::sqrt(norms[order[j]]);
      root[j] = std::sqrt(std::max(d[j], std::sqrt(tiny) * d[0]) + (d[0] == 0));
      // of the two directions, the one whose largest number is positive
      const double* v = &V[order[j] * K];
      const double* most = std::max_element(
          v, v + K, [](double a, double b) { return std::abs(a) < std::abs(b); });
      for (int64_t a = 0; a < K; ++a) VT[j * K + a] = *most < 0 ? -v[a] : v[a];
    }
  }

  // p_j = min(1, d_j/c) with sum r, and the variance
  void shares(double eps) {
    p.assign(K, 1);
    variance = 0;
    if (r == K) return;
    std::vector<double> e(K);
    for (int64_t j = 0; j < K; ++j) e[j] = std::max(d[j], eps * d[0]) + (d[0] == 0);
    double rest = std::accumulate(e.begin(), e.end(), 0.0), c = rest / r;
    int64_t kept = 0;
    while (kept + 1 < r && !(e[kept] <= c)) {
      rest -= e[kept++];
      c = rest / (r - kept);
    }
    variance = c * c * (r - kept);
    for (int64_t j = kept; j < K; ++j) {
      p[j] = std::min(e[j] / c, 1.0);
      variance -= e[j] * e[j];
    }
  }

  // Z/sqrt(p): orthonormal columns in Z, rows of Z of norm^2 p
  void rows() {
    Z.assign(K * r, 0);
    for (int64_t i = 0; i < r; ++i) Z[i * r + i] = 1;
    if (r == K) return;
    auto dot_r = [&](int64_t a, int64_t b) {
      return std::inner_product(&Z[a * r], &Z[a * r] + r, &Z[b * r], 0.0);
    };
    int64_t i = r - 1, j = r;
    for (int64_t step = 0; step < K - 1; ++step) {
      const double a = dot_r(i, i), b = dot_r(j, j), x = dot_r(i, j);
      const bool gives = a - p[i] < p[j] - b;  // i is done after this one, or else j
      const double now = gives ? p[i] : a + b - p[j];
      const double square = std::sqrt(std::max(x * x - (a - now) * (b - now), 0.0));
      const double t = now > b ? (square + x) / (now - b) : 0;
      const double norm = 1 / std::sqrt(1 + t * t);
      for (int64_t z = 0; z < r; ++z) {
        const double zi = Z[i * r + z], zj = Z[j * r + z];
        Z[i * r + z] = (zi + t * zj) * norm;
        Z[j * r + z] = (zj - t * zi) * norm;
      }
      if (!gives) {
        j = std::min(j + 1, K - 1);
      } else if (i > 0) {
        --i;
      }
    }
    for (int64_t j = 0; j < K; ++j) {
      const double norm = std::sqrt(dot_r(j, j));
      for (int64_t z = 0; z < r; ++z) Z[j * r + z] = norm > 0 ? Z[j * r + z] / norm : z == 0;
    }
  }

  double dot(const double* a, const double* b) const {
    double sum[8] = {};  // so that the compiler may take eight at a time
    int64_t i = 0;
    for (; i + 8 <= K; i += 8)
      for (int z = 0; z < 8; ++z) sum[z] += a[i + z] * b[i + z];
    double total = 0;
    for (; i < K; ++i) total += a[i] * b[i];
    for (int z = 0; z < 8; ++z) total += sum[z];
    return total;
  }

  void turn(double* __restrict a, double* __restrict b, double c, double s) const {
    for (int64_t i = 0; i < K; ++i) {
      const double x = a[i], y = b[i];
      a[i] = c * x - s * y;
      b[i] = s * x + c * y;
    }
  }
};

}  // namespace kronline
