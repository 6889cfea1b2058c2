"""Ids by country: people's, companies', documents' and vehicles'. One line is one family; add yours at its
country.

An id whose form leaves no doubt needs no word. Another id needs a word for it to its left: one that is a bare
run of digits, or of digits in groups as any number has them. Check digits are no form: of random numbers, one
in ten passes most of them. A line `by_choice` finds such an id without a word once its country is chosen.
The columns are those of `Family`: country, entity, form, check, words near.
"""

from collections.abc import Iterable

from hooks.builtin.pii_rules import id_checks as own
from hooks.builtin.pii_rules.check_digits import verhoeff
from hooks.builtin.pii_rules.family import Family as F

_CAR_GB = "vehicle|registration|number plate|licence plate|license plate|reg|vrn|dvla|v5c|logbook|mot|car"
_OLD_CAR_GB = r"[A-HJ-NPR-TV-Y]\d{1,3}[ -]?[A-HJ-PR-Z]{3}|[A-HJ-PR-Z]{3}[ -]?\d{1,3}[ -]?[A-HJ-NPR-TV-Y]"
_LICENCE_GB = r"[A-Z][A-Z9]{4}\d(?:[05][1-9]|[16][0-2])(?:0[1-9]|[12]\d|3[01])\d[A-Z9]{2}\d[A-Z]{2}"
_CAR_IN = r"[A-Z]{2}[ -]?\d{1,2}[ -]?[A-Z]{1,3}[ -]?\d{4}|\d\d ?BH ?\d{4} ?[A-HJ-NP-Z]{1,2}"
_LICENSE_US = (
    r"[A-Z]\d{5,9}|[A-Z]\d{11,14}|[A-Z]{2}\d{4,7}|[A-Z]\d{3}[ -]?\d{4}[ -]?\d{4}|\d{7,9}[A-Z]?"
    r"|\d{3}[A-Z]{2}\d{4}|[A-Z]\d{3}-\d{3}-\d{2}-\d{3}-\d"
)
_MONTH = "(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"
_DOCUMENT_DE = r"[CFGHJKLMNPRTVWXYZ][CFGHJKLMNPRTVWXYZ\d]{7}\d"
_STATE_IN = (
    "(?:A[NPRS]|BR|C[GH]|D[DLN]|G[AJ]|H[PR]|J[HK]|K[AL]|L[AD]|M[HLNPZ]|N[AL]"
    "|O[DR]|P[BY]|RJ|SK|T[NRS]|U[AKP]|WB)"
)
_FISCAL_CODE = r"(?i:[a-z]{6}[\dlmnp-v]{2}[abcdehlmprst][\dlmnp-v]{2}[a-z][\dlmnp-v]{3}[a-z])"
_HETU = r"[0-3]\d[01]\d{3}[-+A-FU-Ya-fu-y]\d{3}[\dA-FHJ-NPR-Ya-fhj-npr-y]"
_INSEE = r"[1-478] ?\d\d ?\d\d ?(?:\d\d|2[ABab]) ?\d{3} ?\d{3} ?\d\d"
_MONTH_DAY = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_MBI = r"[1-9][AC-HJKMNP-RT-Y][AC-HJKMNP-RT-Y\d]\d-?[AC-HJKMNP-RT-Y][AC-HJKMNP-RT-Y\d]\d-?"

NATIONAL_IDS = (
    # Argentina
    F("AR", "AR_CUIT", r"(?:20|2[347]|3[034])-\d{8}-\d", "ar.cuit"),
    F("AR", "AR_CUIT", r"(?:20|2[347]|3[034])\d{9}", "ar.cuit", "cuit|cuil"),
    F("AR", "AR_DNI", r"\d\d\.?\d{3}\.?\d{3}", None, "dni"),
    # Austria
    F("AT", "AT_SOCIAL_SECURITY", r"[1-9]\d{3} ?[0-3]\d[01]\d{3}", "at.vnr",
      "svnr|sozialversicherung|versicherung"),
    # Australia
    F("AU", "AU_ABN", r"\d\d ?\d{3} ?\d{3} ?\d{3}", "au.abn", "abn|business number"),
    F("AU", "AU_ABN", r"\d\d \d{3} \d{3} \d{3}", "au.abn", by_choice=True),
    F("AU", "AU_ACN", r"\d{3} ?\d{3} ?\d{3}", "au.acn", "acn|company number"),
    F("AU", "AU_MEDICARE", r"[2-6]\d{3} \d{5} \d", own.au_medicare),
    F("AU", "AU_MEDICARE", r"[2-6]\d{9}", own.au_medicare, "medicare"),
    F("AU", "AU_PASSPORT", r"[A-Z]{1,2}\d{7}", None, "australian passport|passport"),
    F("AU", "AU_TFN", r"\d{3}[ -]?\d{3}[ -]?\d{3}", own.au_tfn, "tfn|tax file"),
    F("AU", "AU_TFN", r"\d{3} \d{3} \d{3}", own.au_tfn, by_choice=True),
    # Belgium
    F("BE", "BE_NISS", r"\d\d([. ])\d\d\1\d\d[ -]\d{3}[. ]\d\d", own.be_niss),
    F("BE", "BE_NISS", r"\d{6}[ -]?\d{3}[ .]?\d\d", own.be_niss,
      "niss|insz|rijksregister|registre national|numéro national|numero national|nationaal nummer"),
    F("BE", "BE_VAT_ID", r"BE ?[01]\d{3}\.?\d{3}\.?\d{3}", "be.vat"),
    # Bulgaria
    F("BG", "BG_EGN", r"\d{10}", "bg.egn", "egn|егн"),
    # Brazil
    F("BR", "BR_CNPJ", r"\d\d\.\d{3}\.\d{3}/\d{4}-\d\d", "br.cnpj"),
    F("BR", "BR_CNPJ", r"\d{14}", "br.cnpj", "cnpj"),
    F("BR", "BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d\d", own.br_cpf),
    F("BR", "BR_CPF", r"\d{9}-?\d\d", own.br_cpf,
      "cpf|cadastro de pessoa física|cadastro de pessoas físicas"),
    # Canada
    F("CA", "CA_PASSPORT", r"[A-Z]{2}\d{6}", None, "canadian passport|passport"),
    F("CA", "CA_SIN", r"\d{3}([ -]?)\d{3}\1\d{3}", own.ca_sin, "sin|social insurance|nas|assurance sociale"),
    F("CA", "CA_SIN", r"\d{3}([ -])\d{3}\1\d{3}", own.ca_sin, by_choice=True),
    # Switzerland
    F("CH", "CH_AHV", r"756([ .])\d{4}\1\d{4}\1\d\d", own.ch_ahv),
    F("CH", "CH_AHV", r"756[ .]?\d{4}[ .]?\d{4}[ .]?\d\d", own.ch_ahv,
      "ahv|avs|ahvn|navs|oasi|sozialversicherung|assurance sociale|social security|versicherten"),
    F("CH", "CH_AHV", r"756[ .]?\d{4}[ .]?\d{4}[ .]?\d\d", own.ch_ahv, by_choice=True),
    F("CH", "CH_UID", r"CHE-\d{3}\.\d{3}\.\d{3}", "ch.uid"),
    # Chile
    F("CL", "CL_RUT", r"\d{1,2}\.\d{3}\.\d{3}-[\dKk]", "cl.rut"),
    F("CL", "CL_RUT", r"\d{7,8}-?[\dKk]", "cl.rut", "rut"),
    # China
    F("CN", "CN_PASSPORT", r"(?:[EG]\d|E[A-Z])\d{7}", None, "passport|护照"),
    F("CN", "CN_RIC", r"[1-9]\d{16}[\dXx]", own.cn_ric),
    # Colombia
    F("CO", "CO_NIT", r"\d{3}\.\d{3}\.\d{3}-\d|\d{9}-?\d", "co.nit", "nit"),
    # Czechia, Slovakia
    F("CZ", "CZ_BIRTH_NUMBER", r"\d{6}/?\d{3,4}", "cz.rc", "rodné číslo|rodne cislo|rč"),
    # Germany
    F("DE", "DE_BSNR", r"\d{9}", None, "bsnr|betriebsstätte|betriebsstätten|praxisnummer"),
    F("DE", "DE_FUEHRERSCHEIN", r"[A-Z]\d\d[A-Z\d]{6}\d[A-Z\d]|[A-Z]{2}\d{8}[A-Z\d]", None,
      "führerschein|fahrerlaubnis|driving licence|driving license|fuehrerschein"),
    F("DE", "DE_HANDELSREGISTER", r"HR[AB][ -]?(?:Nr\. ?)?\d{1,6}(?: ?[A-Z]{1,2})?"),
    F("DE", "DE_HEALTH_INSURANCE", r"[A-Z]\d{9}", own.de_health_insurance,
      "krankenversicherung|krankenversicherten|versicherten|kvnr|egk|krankenkasse|gesundheitskarte|"
      "health insurance"),
    F("DE", "DE_HEALTH_INSURANCE", r"[A-Z]\d{9}", own.de_health_insurance, by_choice=True),
    F("DE", "DE_ID_CARD", _DOCUMENT_DE, own.de_document,
      "personalausweis|ausweis|dokumenten|serien|identity card|id card|npa|national id"),
    F("DE", "DE_ID_CARD", r"T\d{8}", None, "personalausweis|ausweis"),
    F("DE", "DE_KFZ", r"[A-ZÄÖÜ]{1,3}[ -][A-Z]{1,2}[ -]?\d{1,4}[EH]?", None,
      "kennzeichen|nummernschild|kfz|fahrzeug|pkw|license plate|number plate"),
    F("DE", "DE_KFZ", r"[A-ZÄÖÜ]{1,3}-[A-Z]{1,2}[ -]\d{1,4}[EH]?", by_choice=True),
    F("DE", "DE_LANR", r"\d{9}", own.doctor_or_practice, "lanr|arztnummer|arzt"),
    F("DE", "DE_PASSPORT", _DOCUMENT_DE, own.de_document, "reisepass|pass|passport|dokumenten"),
    F("DE", "DE_PLZ", r"\d{5}", None, "plz|postleitzahl"),
    F("DE", "DE_SOCIAL_SECURITY", r"\d\d ?\d{6} ?[A-Z] ?\d{3}", own.de_social_security),
    F("DE", "DE_TAX_ID", r"[1-9]\d[ /]?\d{3}[ /]?\d{3}[ /]?\d{3}", own.de_tax_id, by_choice=True),
    F("DE", "DE_TAX_ID", r"[1-9]\d[ /]?\d{3}[ /]?\d{3}[ /]?\d{3}", own.de_any_tax_id,
      "steuer id|steueridentifikation|steuerliche identifikation|idnr|id nr|steuer idnr|steuer|bzst|tax id|"
      "tax identification"),
    F("DE", "DE_TAX_NUMBER", r"\d{2,3}/\d{3,4}/\d{4,5}|\d{13}", None,
      "steuernummer|steuer nr|st.-nr|finanzamt|steuer|tax number"),
    F("DE", "DE_TAX_NUMBER", r"\d{3}/\d{3,4}/\d{4,5}", by_choice=True),
    F("DE", "DE_VAT_ID", r"DE[ .-]?\d{3}[ .-]?\d{3}[ .-]?\d{3}", "de.vat"),
    # Denmark
    F("DK", "DK_CPR", r"[0-3]\d[01]\d{3}-\d{4}", "dk.cpr", "cpr"),
    F("DK", "DK_CPR", r"[0-3]\d[01]\d{7}", "dk.cpr", "cpr"),
    # Ecuador, Dominican Republic
    F("DO", "DO_CEDULA", r"\d{3}-\d{7}-\d", "do.cedula"),
    F("EC", "EC_CEDULA", r"\d{10}", "ec.ci", "cédula|cedula"),
    # Estonia, Lithuania
    F("EE", "EE_PERSONAL_CODE", r"[1-6]\d{10}", "ee.ik", "isikukood|personal code|asmens kodas"),
    # Spain
    F("ES", "ES_CIF", r"[A-HJNP-SUVW]-?\d{7}-?[\dA-J]", "es.cif", "cif|nif"),
    F("ES", "ES_NIE", r"[XYZxyz][ -]?\d{7}[ -]?[A-Za-z]", own.es_nie),
    F("ES", "ES_NIF", r"\d{8}-?[A-Za-z]|\d{7}-[A-Z]", own.es_nif),
    F("ES", "ES_NIF", r"\d{7,8}[ -]?[A-Za-z]", own.es_nif, "nif|dni|documento nacional|identidad"),
    F("ES", "ES_NIF", r"(?:\d{8}[ -]?|\d{7}-)[A-Za-z]", own.es_nif, by_choice=True),
    F("ES", "ES_PASSPORT", r"[A-Za-z]{3}\d{6}", None, "pasaporte|passport"),
    # Finland
    F("FI", "FI_HETU", _HETU, own.fi_hetu_no_serial),
    F("FI", "FI_HETU", _HETU, own.fi_hetu,
      "hetu|henkilötunnus|henkilotunnus|personbeteckning|personal identity"),
    F("FI", "FI_HETU", _HETU, own.fi_hetu, by_choice=True),
    # France
    F("FR", "FR_INSEE", _INSEE, own.fr_insee,
      "insee|nir|sécurité sociale|securite sociale|sécu|carte vitale"),
    F("FR", "FR_INSEE", r"[12] \d\d \d\d (?:\d\d|2[ABab]) \d{3} \d{3} \d\d", own.fr_insee),
    F("FR", "FR_INSEE", r"[12]\d{4}2[ABab]\d{8}", own.fr_dated_insee),
    F("FR", "FR_INSEE", _INSEE, own.fr_insee, by_choice=True),
    F("FR", "FR_PASSPORT", r"\d\d[A-Z]{2}\d{5}", None, "passeport|passport"),
    F("FR", "FR_SIREN", r"\d{3} ?\d{3} ?\d{3}", "fr.siren", "siren"),
    F("FR", "FR_SIRET", r"\d{3} ?\d{3} ?\d{3} ?\d{5}", "fr.siret", "siret"),
    F("FR", "FR_VAT_ID", r"FR[ ]?[A-HJ-NP-Z\d]{2}[ ]?\d{3} ?\d{3} ?\d{3}", "fr.tva"),
    # United Kingdom
    F("GB", "UK_DRIVING_LICENCE", _LICENCE_GB, own.uk_driving_licence),
    F("GB", "UK_NHS", r"\d{3}([ -])\d{3}\1\d{4}", own.uk_nhs),
    F("GB", "UK_NHS", r"\d{3}[ -]?\d{3}[ -]?\d{4}", own.uk_nhs,
      "nhs|national health service|health authority"),
    F("GB", "UK_NINO", r"[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D]|[a-z]{2} \d\d \d\d \d\d [a-d]", own.uk_nino),
    F("GB", "UK_NINO", r"(?i:[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d])", own.uk_nino,
      "nino|national insurance|ni|n.i."),
    F("GB", "UK_NINO", r"(?i:[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d])", own.uk_nino, by_choice=True),
    F("GB", "UK_PASSPORT", r"[A-Z]{2}\d{7}|\d{9}", None,
      "uk passport|british passport|hm passport|hmpo|passport"),
    F("GB", "UK_POSTCODE", r"[A-PR-UWYZ][A-HK-Y]?\d[\dA-Z]? ?\d[ABD-HJLNP-UW-Z]{2}", None,
      "postcode|post code|postal code"),
    F("GB", "UK_POSTCODE", r"[A-PR-UWYZ][A-HK-Y]?\d[\dA-Z]? \d[ABD-HJLNP-UW-Z]{2}|GIR 0AA", by_choice=True),
    F("GB", "UK_UTR", r"\d{5} ?\d{5}", "gb.utr", "utr|unique taxpayer"),
    F("GB", "UK_VAT_ID", r"GB ?\d{3} ?\d{4} ?\d\d", "gb.vat"),
    F("GB", "UK_VEHICLE_REGISTRATION", r"[A-HJ-PR-Y]{2}\d\d[ -]?[A-HJ-PR-Z]{3}", None, _CAR_GB),
    F("GB", "UK_VEHICLE_REGISTRATION", r"[A-HJ-PR-Y]{2}\d\d ?[A-HJ-PR-Z]{3}", by_choice=True),
    F("GB", "UK_VEHICLE_REGISTRATION", _OLD_CAR_GB, None, _CAR_GB),
    # Greece
    F("GR", "GR_AMKA", r"[0-3]\d[01]\d{8}", "gr.amka", "amka|αμκα"),
    # Croatia
    F("HR", "HR_OIB", r"\d{11}", "hr.oib", "oib"),
    # Hungary
    F("HU", "HU_TAX_ID", r"\d{8}-\d-\d\d|\d{8}", "hu.anum", "adószám|adoszam|tax number"),
    # Indonesia
    F("ID", "ID_NIK", r"\d{16}", "id.nik", "nik|ktp"),
    # Ireland
    F("IE", "IE_PPS", r"\d{7}[A-Wa-w][A-IWa-iw]?", "ie.pps", "pps|ppsn|personal public service"),
    # Israel
    F("IL", "IL_ID", r"\d{9}", "il.idnr", "teudat zehut|israeli id|id number|תעודת זהות"),
    # India
    F("IN", "IN_AADHAAR", r"[2-9]\d{3} \d{4} \d{4}", verhoeff),
    F("IN", "IN_AADHAAR", r"[2-9]\d{3}([ :-]?)\d{4}\1\d{4}", verhoeff,
      "aadhaar|aadhar|adhaar|uidai|unique identification|आधार"),
    F("IN", "IN_AADHAAR", r"[2-9]\d{3}([ :-])\d{4}\1\d{4}", verhoeff, by_choice=True),
    F("IN", "IN_AADHAAR", r"[2-9]\d{11}", own.in_aadhaar_not_time, by_choice=True),
    F("IN", "IN_GSTIN", r"(?:0[1-9]|[12]\d|3[0-8]|9[79])[A-Z]{5}\d{4}[A-Z][A-Z\d]Z[A-Z\d]"),
    F("IN", "IN_PAN", r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]"),
    F("IN", "IN_PAN", r"[A-Z]{5}\d{4}[A-Z]", by_choice=True),
    F("IN", "IN_PASSPORT", r"[A-Z][1-9]\d ?\d{4}[1-9]", None, "passport|पासपोर्ट"),
    F("IN", "IN_VEHICLE_REGISTRATION", _CAR_IN, None, "rto|vehicle|plate|registration|car"),
    F("IN", "IN_VEHICLE_REGISTRATION", rf"{_STATE_IN}\d\d[A-Z]{{1,2}}\d{{4}}"),
    F("IN", "IN_VOTER", r"[A-Z]{3}\d{7}", None, "vote|voter|epic|elector|electoral"),
    F("IN", "IN_VOTER", r"[A-Z]{3}\d{7}", by_choice=True),
    # Iceland
    F("IS", "IS_KENNITALA", r"[0-7]\d[01]\d{3}-?\d{4}", "is_.kennitala", "kennitala|kt"),
    # Italy
    F("IT", "IT_DRIVER_LICENSE", r"[A-Z]{2}\d{7}[A-Z]|U1[A-Z\d]{7}[A-Z]", None,
      "patente|licenza|driving licence|driver license"),
    F("IT", "IT_DRIVER_LICENSE", r"[A-Z]{2}\d{7}[A-Z]", by_choice=True),
    F("IT", "IT_FISCAL_CODE", _FISCAL_CODE, own.it_fiscal_code),
    F("IT", "IT_IDENTITY_CARD", r"[A-Z]{2} ?\d{7}|\d{7}[A-Z]{2}|[A-Z]{2}\d{5}[A-Z]{2}", None,
      "carta|identità|cie|documento|riconoscimento|identity card|id card"),
    F("IT", "IT_PASSPORT", r"[A-Z]{2}\d{7}", None, "passaporto|passport"),
    F("IT", "IT_VAT_CODE", r"\d{11}|IT\d{11}", "it.iva", "partita iva|p iva|p.iva|piva|iva|vat"),
    # Japan
    F("JP", "JP_MY_NUMBER", r"\d{4}[ -]?\d{4}[ -]?\d{4}", "jp.in_", "my number|マイナンバー|個人番号"),
    # Korea
    F("KR", "KR_BRN", r"\d{3}-\d\d-\d{5}", own.kr_brn),
    F("KR", "KR_BRN", r"\d{10}", own.kr_brn, "brn|business registration|사업자"),
    F("KR", "KR_DRIVER_LICENSE", r"(?:1[1-9]|2[0-8])-\d\d-\d{6}-\d\d"),
    F("KR", "KR_DRIVER_LICENSE", r"\d\d[ -]?\d\d[ -]?\d{6}[ -]?\d\d", None,
      "driver license|driver's license|면허"),
    F("KR", "KR_DRIVER_LICENSE", r"(?:1[1-9]|2[0-8]) \d\d \d{6} \d\d", by_choice=True),
    F("KR", "KR_FRN", rf"\d\d{_MONTH_DAY}-[5-8]\d{{6}}", own.kr_resident),
    F("KR", "KR_FRN", rf"\d\d{_MONTH_DAY}[5-8]\d{{6}}", own.kr_resident,
      "frn|foreigner registration|alien registration|외국인"),
    F("KR", "KR_FRN", rf"\d\d{_MONTH_DAY}[5-8]\d{{6}}", own.kr_resident, by_choice=True),
    F("KR", "KR_PASSPORT", r"[MSRODmsrod](?:\d{8}|\d{3}[A-Za-z]\d{4})", None, "passport|여권"),
    F("KR", "KR_PASSPORT", r"[MSROD]\d{3}[A-Z]\d{4}"),
    F("KR", "KR_RRN", rf"\d\d{_MONTH_DAY}-[1-4]\d{{6}}", own.kr_resident),
    F("KR", "KR_RRN", rf"\d\d{_MONTH_DAY}[1-4]\d{{6}}", own.kr_resident,
      "rrn|resident registration|주민"),
    F("KR", "KR_RRN", rf"\d\d{_MONTH_DAY}[1-4]\d{{6}}", own.kr_resident, by_choice=True),
    # Lithuania
    F("LT", "LT_PERSONAL_CODE", r"[3-6]\d{10}", "lt.asmens", "asmens kodas|personal code"),
    # Mexico
    F("MX", "MX_CURP", r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d", "mx.curp"),
    F("MX", "MX_RFC", r"[A-ZÑ&]{3,4}\d{6}[A-Z\d]{3}", "mx.rfc", "rfc"),
    # Malaysia
    F("MY", "MY_NRIC", rf"\d\d{_MONTH_DAY}-\d\d-\d{{4}}", "my.nric"),
    F("MY", "MY_NRIC", rf"\d\d{_MONTH_DAY}\d{{6}}", "my.nric", "nric|mykad|ic"),
    # Nigeria
    F("NG", "NG_NIN", r"\d{11}", verhoeff, "nin|national identification|national identity|nimc"),
    F("NG", "NG_VEHICLE_REGISTRATION", r"[A-Z]{3}[ -]?\d{3}[A-Z]{2}", None,
      "plate|vehicle|registration|car|plate number"),
    F("NG", "NG_VEHICLE_REGISTRATION", r"[A-Z]{3}[ -]?\d{3}[A-Z]{2}", by_choice=True),
    # Netherlands
    F("NL", "NL_BSN", r"\d{4}\.\d\d\.\d{3}", own.nl_bsn),
    F("NL", "NL_BSN", r"\d{3}[ .-]?\d{3}[ .-]?\d{3}", own.nl_bsn, "bsn|burgerservice|sofi|citizen service"),
    F("NL", "NL_PASSPORT", r"[A-NP-Z]{2}[A-NP-Z\d]{6}\d", None, "paspoort"),
    F("NL", "NL_VAT_ID", r"NL\d{9}B\d\d", "nl.btw"),
    # Norway
    F("NO", "NO_FODSELSNUMMER", r"[0-7]\d[0-8]\d{3} ?\d{5}", "no.fodselsnummer",
      "fødselsnummer|fodselsnummer|personnummer|birth number"),
    # New Zealand
    F("NZ", "NZ_IRD", r"\d{2,3}[ -]?\d{3}[ -]?\d{3}", "nz.ird", "ird"),
    # Peru
    F("PE", "PE_RUC", r"[12]\d{10}", "pe.ruc", "ruc"),
    # Philippines
    F("PH", "PH_TIN", r"\d{3}-\d{3}-\d{3}(?:-\d{3,5})?|\d{9}|\d{12}", None, "tin|bir|taxpayer|tax id|rdo"),
    # Pakistan
    F("PK", "PK_CNIC", r"[1-7]\d{4}-\d{7}-\d", "pk.cnic"),
    # Poland
    F("PL", "PL_NIP", r"\d{3}-\d{3}-\d\d-\d\d", "pl.nip"),
    F("PL", "PL_NIP", r"\d{10}", "pl.nip", "nip"),
    F("PL", "PL_PASSPORT", r"[A-Z]{2}\d{7}", None, "paszport"),
    F("PL", "PL_PESEL", r"\d{11}", own.pl_pesel, "pesel"),
    F("PL", "PL_PESEL", r"\d{11}", own.pl_pesel, by_choice=True),
    F("PL", "PL_REGON", r"\d{9}|\d{14}", "pl.regon", "regon"),
    # Portugal
    F("PT", "PT_NIF", r"\d{3} ?\d{3} ?\d{3}", own.pt_nif, "nif|contribuinte|número fiscal|numero fiscal"),
    # Romania
    F("RO", "RO_CNP", r"[1-8]\d\d[01]\d[0-3]\d{7}", "ro.cnp", "cnp|cod numeric"),
    # Russia
    F("RU", "RU_INN", r"\d{12}|\d{10}", "ru.inn", "инн|inn"),
    # Sweden
    F("SE", "SE_ORGANISATIONSNUMMER", r"\d{6}-?\d{4}", "se.orgnr",
      "organisations|orgnr|org nr|företags|foretags"),
    F("SE", "SE_ORGANISATIONSNUMMER", r"\d\d[2-9]\d{3}-\d{4}", "se.orgnr", by_choice=True),
    F("SE", "SE_PERSONNUMMER", r"(?:18|19|20)?\d{6}[-+]\d{4}", own.se_personnummer_no_serial),
    F("SE", "SE_PERSONNUMMER", r"(?:18|19|20)?\d{6}[-+]?\d{4}", own.se_personnummer,
      "personnr|personnummer|personal identity|samordnings|pnr|svensk id|swedish id"),
    F("SE", "SE_PERSONNUMMER", r"(?:19\d|20[01])\d{9}", own.se_personnummer_no_serial),
    F("SE", "SE_PERSONNUMMER", r"(?:18|19|20)?\d{6}[-+]\d{4}|\d{10}", own.se_personnummer, by_choice=True),
    F("SE", "SE_PERSONNUMMER", r"(?:18|19|20)\d{10}", own.se_personnummer_not_time, by_choice=True),
    # Singapore
    F("SG", "SG_NRIC", r"[STFGMstfgm]\d{7}[A-Za-z]", own.sg_nric),
    F("SG", "SG_UEN", r"[TSR]\d\d[A-Z]{2}\d{4}[A-Z]", "sg.uen"),
    F("SG", "SG_UEN", r"\d{8,9}[A-Z]", "sg.uen", "uen|unique entity|business registration|acra"),
    # Slovenia and its neighbours
    F("SI", "SI_EMSO", r"[0-3]\d[01]\d{10}", "si.emso", "emšo|emso|jmbg|matični broj"),
    # Thailand
    F("TH", "TH_TNIN", r"[1-8]-\d{4}-\d{5}-\d\d-\d", "th.pin"),
    F("TH", "TH_TNIN", r"[1-8]\d{12}", "th.pin",
      "tnin|thai national|thai id|national id|เลขประจำตัว|เลขบัตร|รหัสปชช"),
    # Turkey
    F("TR", "TR_LICENSE_PLATE", r"(?:0[1-9]|[1-7]\d|8[01])[ -]?[A-PR-VYZ]{1,3}[ -]?\d{2,4}", None,
      "plaka|plakası|plate|license plate|number plate|kayıt"),
    F("TR", "TR_LICENSE_PLATE", rf"(?:0[1-9]|[1-7]\d|8[01])([ -])(?!{_MONTH})[A-PR-VYZ]{{1,3}}\1\d{{2,4}}",
      by_choice=True),
    F("TR", "TR_NATIONAL_ID", r"[1-9]\d{10}", own.tr_national_id,
      "tc kimlik|t.c. kimlik|kimlik|tckn|tc|vatandaşlık|turkish id|national id"),
    F("TR", "TR_NATIONAL_ID", r"[1-9]\d{10}", own.tr_national_id, by_choice=True),
    F("TR", "TR_VKN", r"\d{10}", "tr.vkn", "vergi|vkn"),
    # Taiwan, Ukraine
    F("TW", "TW_UBN", r"\d{8}", "tw.ubn", "ubn|統一編號|統編"),
    F("UA", "UA_RNTRC", r"\d{10}", "ua.rntrc", "рнокпп|інн|rntrc"),
    # United States
    F("US", "ABA_ROUTING_NUMBER", r"[0-3678]\d{3}-\d{4}-\d", "us.rtn"),
    F("US", "ABA_ROUTING_NUMBER", r"[0-3678]\d{8}", "us.rtn", "aba|routing|rtn|abarouting|bankrouting"),
    F("US", "MEDICAL_LICENSE", r"[A-HJ-MPR-UX][A-Z9]\d{7}", own.dea_number,
      "dea|medical|prescriber|certificate"),
    F("US", "US_BANK_NUMBER", r"\d{8,17}", None,
      "bank account|account number|account no|acct|checking account|savings account"),
    F("US", "US_DRIVER_LICENSE", _LICENSE_US, None,
      "driver license|driver's license|drivers license|driver licence|driver's licence|driving license|"
      "driver permit|dl number|dl no|dl#"),
    F("US", "US_EIN", r"\d\d-\d{7}", "us.ein", "ein|employer identification|fein|tax id"),
    F("US", "US_ITIN", r"9\d\d([ -])(?:5\d|6[0-5]|7\d|8[0-8]|9[0-24-9])\1\d{4}"),
    F("US", "US_ITIN", r"9\d\d[ -]?(?:5\d|6[0-5]|7\d|8[0-8]|9[0-24-9])[ -]?\d{4}", None,
      "itin|taxpayer|tax id|individual taxpayer|tin"),
    F("US", "US_MBI", _MBI + r"[AC-HJKMNP-RT-Y]{2}\d\d"),
    F("US", "US_NPI", r"[12]\d{3}[ -]?\d{3}[ -]?\d{3}", own.us_npi,
      "npi|national provider|provider identifier|provider number"),
    F("US", "US_PASSPORT", r"[A-Z]\d{8}|\d{9}", None, "us passport|passport|passport#|travel document"),
    F("US", "US_SSN", r"\d{3}([ -])\d\d\1\d{4}", own.us_ssn),
    F("US", "US_SSN", r"\d{3}([ .-]?)\d\d\1\d{4}", own.us_ssn, "ssn|social security|ss#"),
    F("US", "US_SSN_UNISSUED", r"9\d\d-\d\d-\d{4}", own.us_unissued_ssn, by_choice=True),
    # Vietnam
    F("VN", "VN_MST", r"\d{10}(?:-\d{3})?", "vn.mst", "mst|mã số thuế"),
    # South Africa
    F("ZA", "ZA_ID_NUMBER", rf"\d\d{_MONTH_DAY} \d{{4}} [01]\d{{2}}", own.za_id),
    F("ZA", "ZA_ID_NUMBER", rf"\d\d{_MONTH_DAY} ?\d{{4}} ?[01]\d{{2}}", own.za_id,
      "south african id|sa id|rsa id|id number|identity number|identiteitsnommer"),
    F("ZA", "ZA_ID_NUMBER", rf"\d\d{_MONTH_DAY} ?\d{{4}} ?[01]\d{{2}}", own.za_id, by_choice=True),
)  # fmt: skip
"""The families, by country."""


def countries(families: Iterable[F] = NATIONAL_IDS) -> tuple[str, ...]:
    """Return the countries of the families (ISO 3166 codes)."""
    return tuple(dict.fromkeys(family.country for family in families if family.country))
