/* SPDX-License-Identifier: Apache-2.0 */
/* Mangled names, by what the Itanium C++ ABI says of them. */
#include "kparams/internal.h"

#include "tests/check_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What each parameter holds: P a pointer, F a pointer to a function, n a number, . anything. NULL
 * where nothing is to be said.
 */
static const struct {
	const char *name, *want;
} cases[] = {
	{"_Z1fv", ""},
	{"_Z1fi", "n"},
	{"_Z1fPfPKfPPvPKcm", "PPPPn"},
	{"_Z1fRiOiRA4_iPA4_i", "PPPP"},
	{"_Z1f1SPS_RKS_S_", ".PP."},
	{"_Z1fPFivEPS_PS0_RFvPfE", "FFPF"},
	{"_Z1fM1SiMS_FvvE", ".."},
	{"_Z1fDnDhDF16_DsDi", "Pnnnn"},
	{"_Z1fu6__bf16U3ABCi", NULL},
	{"_Z1fPVKrc", "P"},
	/* Substitutions: the first component is 1S, then P1S, then K1S... */
	{"_Z1f1SPS_S0_KS_PKS_", ".PP.P"},
	{"_Z1fN1a1bEPS0_PKS_S0_", ".PP."},
	{"_Z1fSt6vectorIiSaIiEES1_PS1_", "..P"},
	{"_Z1fSsSaIcEPSsS0_", "..PP"},
	{"_Z1fPiS_S_", "PPP"},
	{"_Z1fS_", NULL},
	/* Templates: the return type comes first; T_ is what the argument is. */
	{"_Z1fIfEvT_PT_", "nP"},
	{"_Z1fIPfEvT_S1_PS1_", "PPP"},
	{"_Z1fIPFvvEEvT_", "F"},
	{"_Z1fIfiEvT0_T_S0_", "nnn"},
	{"_Z1fIN1a1bEEvT_S1_PS1_", "..P"},
	{"_Z1fILi3EfEvT0_", "n"},
	{"_Z1fIXadL_Z1gvEEPiEvT0_", "P"},
	/* Expressions, as nvcc mangles them. */
	{"_Z1gIfEvT_PNSt9enable_ifIXaagtstS0_Li2Esr3std7is_sameIS0_fEE5valueES0_E4typeE", "nP"},
	{"_Z1hIfEvT_PDTplfL0p_Li1EEPDTcvS0_Li3EE", "nPP"},
	{"_Z1kIfEvPT_P2BlIXnxcl3valIS0_EEEES2_IXeqszplcl3valIS0_EEtlS0_ELi4EEEPS2_IXntsr3std11is_"
	 "integralIS0_EE5valueEE",
	 "PP.P"},
	{"_Z1mIJiPfEEvP2BlIXgtsZT_Li1EEEDpT_", "PnP"},
	{"_Z1nIiL1E1EXadL_Z3fooiEEEvPT_P1WIXT0_EEPS3_ILi3EE", "PPP"},
	{"_Z1oIJifEEv2BlIXfraasr3std11is_integralIT_EE5valueEEDpPS1_", ".PP"},
	{"_Z1fIiXgtLi3ELi2EEEvPT_", "P"},
	{"_ZN1a1fIPiEEvT_S2_", "PP"},
	{"_ZN1a1SIPiE1fEPS1_", "P"},
	/* Packs. */
	{"_Z1fIJEEvDpT_i", "n"},
	{"_Z1fIJPfidEEvDpT_", "Pnn"},
	{"_Z1fIJfdEEviDpPT_", "nPP"},
	{"_Z1fIJfdEEvDpRKT_i", "PPn"},
	{"_Z1fIJfdEEvDpPT_DpRS0_", "PPPP"},
	{"_Z1fIPiJfPdEEvT_DpT0_", "PnP"},
	/* Local names and lambdas. */
	{"_Z1fIZ4mainEUliE_EvT_PS1_", ".P"},
	{"_Z1fIZ4mainEUlT_E_EvS1_", "."},
	{"_Z1fIZN1S1gIiEEvT_EUlvE0_PdEvS3_T0_", ".P"},
	/*
	 * S2_ is T0_ of g(), a float, where the lambda is named, and T0_ of k() where k() takes it.
	 */
	{"_Z1kIZ1gIbfEvT_T0_EUlvE_1AEviS1_S2_", "n.."},
	{"_Z1kIZ1gIbfEvT_T0_EUlvE_PiEviS1_S2_", "n.P"},
	{"_ZZ4mainENKUlPiE_clES_", "P"},
	{"_ZN12_GLOBAL__N_11fEPi", "P"},
	{"_ZL1fPi", "P"},
	{"_Z1fB5cxx11Pi", "P"},
	/* What comes behind is no parameter. */
	{"_Z1fPi.constprop.0", "P"},
	/* Malformed or not mangled. */
	{"", NULL},
	{"_Z", NULL},
	{"f", NULL},
	{"_Z9f", NULL},
	{"_Z1fN", NULL},
	{"_Z1fP", NULL},
	{"_Z1fIi", NULL},
	{"_Z1fT", NULL},
	{"_Z1fA", NULL},
	{"_Z1fDpT_", NULL},
	{"_Z1fiE", NULL},
	{"_Z99999999999999999999f", NULL},
	{"_Z1fS9999999999_", NULL},
	{"_Z1fIXonE", NULL},
};

static const char *answer(const char *name)
{
	static char text[65];
	uint8_t holds[64];
	int n = kp_mangled_params(name, holds, 64);

	if (n < 0)
		return "nothing";
	for (int i = 0; i < n; i++)
		text[i] = holds[i] == KP_POINTER      ? 'P'
			  : holds[i] == KP_CODE       ? 'F'
			  : holds[i] == KP_NO_POINTER ? 'n'
						      : '.';
	text[n] = '\0';
	return text;
}

START_TEST(names)
{
	const char *want = cases[_i].want ? cases[_i].want : "nothing";

	ck_assert_msg(!strcmp(answer(cases[_i].name), want), "%s: got '%s', want '%s'",
		      cases[_i].name, answer(cases[_i].name), want);
}
END_TEST

/* Every prefix of a good name is read without harm, under a sanitizer without a report. */
START_TEST(prefixes)
{
	size_t len = strlen(cases[_i].name);

	for (size_t n = 0; n <= len; n++) {
		char *copy = strndup(cases[_i].name, n);

		answer(copy);
		free(copy);
	}
}
END_TEST

START_TEST(deep_nesting_ends)
{
	char *name = malloc(1 << 20);

	memset(name, 'P', 1 << 20);
	memcpy(name, "_Z1f", 4);
	name[(1 << 20) - 1] = '\0';
	ck_assert_str_eq(answer(name), "nothing");
	for (char *p = name + 4; p < name + (1 << 20) - 3; p += 2)
		memcpy(p, "1I", 2);
	ck_assert_str_eq(answer(name), "nothing");
	free(name);
}
END_TEST

START_TEST(more_than_asked_for)
{
	uint8_t holds[2] = {77, 77};

	ck_assert_int_lt(kp_mangled_params("_Z1fiii", holds, 2), 0);
	ck_assert_int_eq(kp_mangled_params("_Z1fPii", holds, 2), 2);
	ck_assert_int_eq(holds[0], KP_POINTER);
	ck_assert_int_eq(holds[1], KP_NO_POINTER);
}
END_TEST

START_TEST(prefix_of_static_kernels)
{
	ck_assert_str_eq(kp_mangled_part("__nv_static_31__0b09a6a4_4_k_cu_main__Z1fPi"), "_Z1fPi");
	ck_assert_str_eq(kp_mangled_part("__nv_static_31_"), "__nv_static_31_");
	ck_assert_str_eq(kp_mangled_part("_Z1fPi"), "_Z1fPi");
	ck_assert_str_eq(kp_mangled_part("f"), "f");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kparams_mangled");
	TCase *tc = tcase_create("kparams_mangled");

	tcase_add_loop_test(tc, names, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_loop_test(tc, prefixes, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_test(tc, deep_nesting_ends);
	tcase_add_test(tc, more_than_asked_for);
	tcase_add_test(tc, prefix_of_static_kernels);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
